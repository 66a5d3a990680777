"""Command lines and environments of Hadoop's daemons and tools. Runs nothing."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from themis.values import Value
from themis_lab.devcluster.addresses import Addresses
from themis_lab.devcluster.configuration import MARK, NODE_ATTRIBUTES, NODE_MARK, node_attributes, node_properties
from themis_lab.devcluster.layout import Layout
from themis_lab.devcluster.spec import DATANODE, NAMENODE, RESOURCE_MANAGER, ClusterSpec, host_of

_MAINS = {
    NAMENODE: "org.apache.hadoop.hdfs.server.namenode.NameNode",
    DATANODE: "org.apache.hadoop.hdfs.server.datanode.DataNode",
    RESOURCE_MANAGER: "org.apache.hadoop.yarn.server.resourcemanager.ResourceManager",
}
_NODE_MANAGER_MAIN = "org.apache.hadoop.yarn.server.nodemanager.NodeManager"
_RM_ADMIN_MAIN = "org.apache.hadoop.yarn.client.cli.RMAdminCLI"
_HEAP_MB = {NAMENODE: 96, DATANODE: 64, RESOURCE_MANAGER: 128}
_NODE_MANAGER_HEAP_MB = 64
TOOL_HEAP_MB = 96
# Small and quick to start: loading classes costs more than running them.
_JVM = (
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-Xss512k",
    # No file in /tmp/hsperfdata_*, which would outlive a killed daemon.
    "-XX:-UsePerfData",
    "-Djava.net.preferIPv4Stack=true",
    # Hadoop 3.4 reaches into java.lang (RM and NM die of InaccessibleObjectException); 3.5 does not mind.
    "--add-opens=java.base/java.lang=ALL-UNNAMED",
)
# What a daemon, and by the whitelist a container, needs of the user's own environment.
_PASSED_ON = ("HOME", "LANG", "LC_ALL", "LOGNAME", "PATH", "TMPDIR", "TZ", "USER")


class Programs(Value, frozen=True, kw_only=True):
    """The programs of the daemons.

    Attributes:
        java: The program itself, not a link to it.
        jars: Folder with Hadoop's jars.
    """

    java: Path
    jars: Path


class Deployment(Value, frozen=True, kw_only=True):
    """Everything that is decided before the start.

    Attributes:
        identity: Value of the mark that all processes of the cluster carry.
    """

    identity: str
    spec: ClusterSpec
    addresses: Addresses
    layout: Layout
    programs: Programs


def daemon_command(deployment: Deployment, daemon: str) -> list[str]:
    """The command line that starts a daemon."""
    host = host_of(daemon)
    if host is None:
        return java_command(deployment, _MAINS[daemon], _HEAP_MB[daemon])
    index = deployment.spec.hosts.index(host)
    own = node_properties(deployment.spec, deployment.addresses, deployment.layout, index)
    options = [word for name, value in own.items() for word in ("-D", f"{name}={value}")]
    java = java_command(deployment, _NODE_MANAGER_MAIN, _NODE_MANAGER_HEAP_MB)
    return [java[0], f"-D{NODE_ATTRIBUTES}={node_attributes(deployment.spec, index)}", *java[1:], *options]


def format_command(deployment: Deployment) -> list[str]:
    """The command that makes an empty file system."""
    return [*daemon_command(deployment, NAMENODE), "-format", "-force", "-nonInteractive"]


def refresh_nodes_command(deployment: Deployment, graceful_s: int | None) -> list[str]:
    """The command that makes the ResourceManager read the list of decommissioned nodes again."""
    graceful = [] if graceful_s is None else ["-g", str(graceful_s), "-server"]
    return [*java_command(deployment, _RM_ADMIN_MAIN, TOOL_HEAP_MB), "-refreshNodes", *graceful]


def java_command(deployment: Deployment, main: str, heap_mb: int) -> list[str]:
    """A Java program with Hadoop's jars and this cluster's configuration on its class path."""
    layout = deployment.layout
    return [
        str(deployment.programs.java),
        f"-Xmx{heap_mb}m",
        *_JVM,
        f"-Djdk.net.hosts.file={layout.hosts}",
        f"-Dhadoop.home.dir={layout.root}",
        f"-Djava.io.tmpdir={layout.temporary}",
        *([deployment.spec.kerberos.java_option] if deployment.spec.kerberos else []),
        "-cp",
        f"{layout.conf}:{deployment.programs.jars}/*",
        main,
    ]


def daemon_environment(deployment: Deployment, daemon: str) -> dict[str, str]:
    """The whole environment of a daemon."""
    host = host_of(daemon)
    return hadoop_environment(deployment) | ({} if host is None else {NODE_MARK: host})


def hadoop_environment(deployment: Deployment) -> dict[str, str]:
    """The whole environment of a program that belongs to the cluster."""
    own: Mapping[str, str] = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
    return {
        **own,
        MARK: deployment.identity,
        "HADOOP_CONF_DIR": str(deployment.layout.conf),
        "HADOOP_HOME": str(deployment.layout.root),
        "HADOOP_USER_NAME": deployment.spec.user,
        "JAVA_HOME": str(deployment.programs.java.parents[1]),
        # Else glibc takes 64 MB of address space a thread.
        "MALLOC_ARENA_MAX": "2",
    }
