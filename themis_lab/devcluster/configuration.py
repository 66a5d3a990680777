"""Hadoop's configuration files for a development cluster, as text by file name.

What differs from Hadoop's defaults, and why: short heartbeats, so that tests need not wait; recovery, so that killed
daemons come back as they would on a real cluster; small heaps and no checks of memory, since everything shares one
machine.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping
from xml.sax.saxutils import escape

from themis_lab.devcluster import recovery
from themis_lab.devcluster.addresses import Addresses, Port
from themis_lab.devcluster.layout import Layout
from themis_lab.devcluster.spec import ClusterSpec

GPU = "yarn.io/gpu"
DEVICE_ATTRIBUTE = "device"
NODE_ATTRIBUTES = "themis.devcluster.node-attributes"
"""Java system property of each NodeManager with the attributes of its node."""
QUEUES = ("default", "research")
AM_EXPIRY_MS = 60_000

MARK = "THEMIS_DEVCLUSTER"
"""Environment variable of every daemon, inherited by every container: the cluster's identity."""
NODE_MARK = "THEMIS_DEVCLUSTER_NODE"
"""The same for the processes of one node: its name."""

# What containers inherit from their NodeManager: YARN's default list, and the marks.
_INHERITED = (
    "JAVA_HOME,HADOOP_COMMON_HOME,HADOOP_HDFS_HOME,HADOOP_CONF_DIR,CLASSPATH_PREPEND_DISTCACHE,HADOOP_YARN_HOME,"
    f"HADOOP_HOME,PATH,LANG,TZ,{MARK},{NODE_MARK}"
)
_LEVELDB_STORE = "org.apache.hadoop.yarn.server.resourcemanager.recovery.LeveldbRMStateStore"
_CALCULATOR = "org.apache.hadoop.yarn.util.resource.DominantResourceCalculator"

_LOG4J = """\
hadoop.root.logger=INFO,console
log4j.rootLogger=${hadoop.root.logger}
log4j.appender.console=org.apache.log4j.ConsoleAppender
log4j.appender.console.target=System.err
log4j.appender.console.layout=org.apache.log4j.PatternLayout
log4j.appender.console.layout.ConversionPattern=%d{ISO8601} %p %c{1}: %m%n
# Expected here: there are no native libraries.
log4j.logger.org.apache.hadoop.util.NativeCodeLoader=ERROR
"""


def configuration_files(spec: ClusterSpec, addresses: Addresses, layout: Layout) -> Mapping[str, str]:
    """Every file of the configuration folder, text by name."""
    core, hdfs = _core_site(spec, addresses, layout), _hdfs_site(addresses, layout)
    yarn, capacity = _resource_manager(spec, addresses, layout) | _node_managers(spec), _capacity_scheduler()
    if spec.kerberos is not None:
        core.update(spec.kerberos.core_site())
        hdfs.update(spec.kerberos.hdfs_site())
        yarn.update(spec.kerberos.yarn_site())
    if spec.acls:
        yarn.update({"yarn.acl.enable": "true", "yarn.admin.acl": spec.user})
        # By default every user administers every queue.
        capacity["yarn.scheduler.capacity.root.acl_administer_queue"] = spec.user
    return {
        "core-site.xml": _xml(core),
        "hdfs-site.xml": _xml(hdfs),
        "yarn-site.xml": _xml(yarn),
        "capacity-scheduler.xml": _xml(capacity),
        "resource-types.xml": _xml({"yarn.resource-types": GPU}),
        "log4j.properties": _LOG4J,
        "hosts": _hosts(spec, addresses),
        "exclude": "",
    }


def node_properties(spec: ClusterSpec, addresses: Addresses, layout: Layout, index: int) -> Mapping[str, str]:
    """The properties of one node's NodeManager (counted from 0), passed on its command line."""
    host = spec.hosts[index]
    folder = layout.node(host)
    return {
        "yarn.nodemanager.hostname": host,
        "yarn.nodemanager.address": f"{host}:{addresses.port(Port.NM)}",
        "yarn.nodemanager.localizer.address": f"{host}:{addresses.port(Port.NM_LOCALIZER)}",
        "yarn.nodemanager.collector-service.address": f"{host}:{addresses.port(Port.NM_COLLECTOR)}",
        "yarn.nodemanager.webapp.address": f"{host}:{addresses.port(Port.NM_WEB)}",
        "yarn.nodemanager.local-dirs": str(folder / "local"),
        "yarn.nodemanager.log-dirs": str(folder / "logs"),
        "yarn.nodemanager.recovery.dir": str(folder / recovery.FOLDER),
        f"yarn.nodemanager.resource-type.{GPU}": str(spec.gpus[index]),
    }


def node_attributes(spec: ClusterSpec, index: int) -> str:
    """The attributes of one node (counted from 0) as its NodeManager reads them: name, type and value."""
    device = spec.devices[index] if spec.devices else ""
    return f"{DEVICE_ATTRIBUTE},STRING,{device}" if device else ""


def _core_site(spec: ClusterSpec, addresses: Addresses, layout: Layout) -> dict[str, str]:
    return {
        "fs.defaultFS": f"hdfs://{addresses.at_master(Port.NAMENODE)}",
        "hadoop.tmp.dir": str(layout.temporary),
        # The web pages act as this user.
        "hadoop.http.staticuser.user": spec.user,
    }


def _hdfs_site(addresses: Addresses, layout: Layout) -> dict[str, str]:
    return {
        "dfs.namenode.rpc-address": addresses.at_master(Port.NAMENODE),
        "dfs.namenode.http-address": addresses.at_master(Port.NAMENODE_WEB),
        "dfs.namenode.name.dir": f"file://{layout.data / 'namenode'}",
        "dfs.namenode.datanode.registration.ip-hostname-check": "false",
        "dfs.namenode.safemode.extension": "0",
        # A DataNode that was killed counts as dead after twice the recheck interval and ten heartbeats: 12 s.
        "dfs.heartbeat.interval": "1",
        "dfs.namenode.heartbeat.recheck-interval": "1000",
        "dfs.datanode.hostname": addresses.master,
        # The NameNode knows the DataNode by the address that its connection came from, which is not where it listens.
        "dfs.client.use.datanode.hostname": "true",
        "dfs.datanode.use.datanode.hostname": "true",
        "dfs.datanode.address": addresses.at_master(Port.DATANODE),
        "dfs.datanode.ipc.address": addresses.at_master(Port.DATANODE_IPC),
        "dfs.datanode.http.address": addresses.at_master(Port.DATANODE_WEB),
        "dfs.datanode.data.dir": f"file://{layout.data / 'datanode'}",
        "dfs.replication": "1",
        "dfs.client.block.write.replace-datanode-on-failure.policy": "NEVER",
        "dfs.client.block.write.locateFollowingBlock.initial.delay.ms": "10",
    }


def _resource_manager(spec: ClusterSpec, addresses: Addresses, layout: Layout) -> dict[str, str]:
    rm = "yarn.resourcemanager"
    return {
        f"{rm}.hostname": addresses.master,
        f"{rm}.address": addresses.at_master(Port.RM),
        f"{rm}.scheduler.address": addresses.at_master(Port.RM_SCHEDULER),
        f"{rm}.resource-tracker.address": addresses.at_master(Port.RM_TRACKER),
        f"{rm}.admin.address": addresses.at_master(Port.RM_ADMIN),
        f"{rm}.webapp.address": addresses.at_master(Port.RM_WEB),
        f"{rm}.nodes.exclude-path": str(layout.exclude),
        f"{rm}.nodemanagers.heartbeat-interval-ms": str(spec.heartbeat_ms),
        "yarn.nm.liveness-monitor.expiry-interval-ms": str(spec.expiry_ms),
        # The end of its process and the loss of its node are reported at once. This is for one that hangs or starts
        # slowly.
        "yarn.am.liveness-monitor.expiry-interval-ms": str(AM_EXPIRY_MS),
        f"{rm}.recovery.enabled": "true",
        f"{rm}.work-preserving-recovery.enabled": "true",
        f"{rm}.work-preserving-recovery.scheduling-wait-ms": "1000",
        f"{rm}.store.class": _LEVELDB_STORE,
        # By default in /tmp, where two clusters would share it.
        "yarn.node-attribute.fs-store.root-dir": f"file://{layout.data / 'node-attributes'}",
        f"{rm}.leveldb-state-store.path": str(layout.data / "resourcemanager"),
        f"{rm}.connect.max-wait.ms": "60000",
        f"{rm}.connect.retry-interval.ms": "500",
        "yarn.acl.enable": "false",
        "yarn.scheduler.minimum-allocation-mb": "64",
        "yarn.scheduler.maximum-allocation-mb": str(spec.memory_mb),
        "yarn.scheduler.maximum-allocation-vcores": str(spec.vcores),
        "yarn.log-aggregation-enable": "true",
    }


def _node_managers(spec: ClusterSpec) -> dict[str, str]:
    nm = "yarn.nodemanager"
    return {
        f"{nm}.resource.memory-mb": str(spec.memory_mb),
        f"{nm}.resource.cpu-vcores": str(spec.vcores),
        f"{nm}.vmem-check-enabled": "false",
        f"{nm}.pmem-check-enabled": "false",
        f"{nm}.disk-health-checker.max-disk-utilization-per-disk-percentage": "99.5",
        f"{nm}.recovery.enabled": "true",
        # Unsupervised: a NodeManager that is stopped (not killed) ends its containers.
        f"{nm}.recovery.supervised": "false",
        f"{nm}.sleep-delay-before-sigkill.ms": "2000",
        f"{nm}.env-whitelist": _INHERITED,
        f"{nm}.node-attributes.provider": "config",
        # The provider reads this file again, and so ignores options of the command line. Java's own properties count.
        f"{nm}.node-attributes.provider.configured-node-attributes": f"${{{NODE_ATTRIBUTES}}}",
    }


def _capacity_scheduler() -> dict[str, str]:
    scheduler = "yarn.scheduler.capacity"
    properties = {
        f"{scheduler}.root.queues": ",".join(QUEUES),
        f"{scheduler}.maximum-am-resource-percent": "1.0",
        # The default looks at memory only and would hand out GPUs that are not there.
        f"{scheduler}.resource-calculator": _CALCULATOR,
        f"{scheduler}.node-locality-delay": "40",
    }
    for queue in QUEUES:
        properties[f"{scheduler}.root.{queue}.capacity"] = str(100 // len(QUEUES))
        properties[f"{scheduler}.root.{queue}.maximum-capacity"] = "100"
        properties[f"{scheduler}.root.{queue}.user-limit-factor"] = "10"
    return properties


def _hosts(spec: ClusterSpec, addresses: Addresses) -> str:
    # Java looks nowhere else: without this machine's own name every daemon ends with UnknownHostException. The
    # ResourceManager builds links to its pages from what that name's address is called: it must be where they answer.
    lines = ["127.0.0.1 localhost", f"{addresses.master} {addresses.master} {socket.gethostname()}"]
    lines += [f"{addresses.node(index)} {host}" for index, host in enumerate(spec.hosts)]
    return "\n".join(lines) + "\n"


def _xml(properties: Mapping[str, str]) -> str:
    lines = [
        f"  <property><name>{escape(name)}</name><value>{escape(value)}</value></property>"
        for name, value in sorted(properties.items())
    ]
    return "\n".join(['<?xml version="1.0"?>', "<configuration>", *lines, "</configuration>", ""])
