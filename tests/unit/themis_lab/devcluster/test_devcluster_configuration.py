"""Hadoop's configuration files, and the commands of daemons."""

import itertools
import shlex
import socket
import subprocess
from xml.etree import ElementTree

import pytest
from deployments import a_deployment
from msgspec.structs import replace

from themis.errors import InputError
from themis.hadoop.configuration import HadoopConfiguration
from themis_lab.devcluster.addresses import Port
from themis_lab.devcluster.cluster import DevCluster
from themis_lab.devcluster.configuration import MARK, NODE_MARK, QUEUES, configuration_files, node_properties
from themis_lab.devcluster.daemon_set import DaemonSet
from themis_lab.devcluster.daemons import daemon_command, daemon_environment, format_command, refresh_nodes_command
from themis_lab.devcluster.folder import make_folders
from themis_lab.devcluster.kerberos import PRINCIPALS, Kerberos
from themis_lab.devcluster.spec import NAMENODE, ClusterSpec, node_manager
from themis_lab.devcluster.tools import tool_scripts


@pytest.fixture
def deployment(tmp_path):
    # A name that XML and shells would stumble over.
    return a_deployment(tmp_path / "a <b> & 'c'")


@pytest.fixture
def written(deployment):
    make_folders(
        deployment.layout,
        configuration_files(deployment.spec, deployment.addresses, deployment.layout),
        tool_scripts(deployment),
    )
    return deployment


@pytest.fixture
def site(written):
    return HadoopConfiguration.load(written.layout.conf)


def test_every_address_belongs_to_cluster(site, deployment):
    listening = {name: site.get(name) for name in site.names() if name.endswith("address")}
    assert len(listening) == 10
    assert len(set(listening.values())) == 10
    assert {value.split(":")[0] for value in listening.values()} == {deployment.addresses.master}
    assert site.get("fs.defaultFS") == f"hdfs://{deployment.addresses.master}:20000"


def test_all_paths_are_inside_folder(site, deployment):
    root = str(deployment.layout.root)
    paths = [site.get(name) for name in site.names() if name.endswith(("dir", "path"))]
    assert len(paths) == 6
    assert all(path.removeprefix("file://").startswith(root) for path in paths), paths


def test_recovery_of_killed_daemons_is_on(site):
    for name in (
        "yarn.resourcemanager.recovery.enabled",
        "yarn.resourcemanager.work-preserving-recovery.enabled",
        "yarn.nodemanager.recovery.enabled",
        "yarn.log-aggregation-enable",
    ):
        assert site.get(name) == "true", name
    # Containers are found by these when their NodeManager is gone.
    assert {MARK, NODE_MARK} <= set(site.get("yarn.nodemanager.env-whitelist").split(","))


def test_queue_shares_add_up_to_whole(written):
    root = ElementTree.parse(written.layout.conf / "capacity-scheduler.xml").getroot()
    found = {entry.findtext("name"): entry.findtext("value") for entry in root}
    assert found["yarn.scheduler.capacity.root.queues"] == ",".join(QUEUES)
    assert sum(int(found[f"yarn.scheduler.capacity.root.{queue}.capacity"]) for queue in QUEUES) == 100


def test_java_hosts_file_has_nodes_and_this_machine(written):
    lines = [line.split() for line in written.layout.hosts.read_text().splitlines()]
    assert lines == [
        ["127.0.0.1", "localhost"],
        ["127.18.52.1", "127.18.52.1", socket.gethostname()],
        ["127.18.52.2", "gpu-node-1"],
        ["127.18.52.3", "gpu-node-2"],
    ]


def test_nodes_differ_only_in_name_folders_and_gpus(deployment):
    one, other = (
        node_properties(deployment.spec, deployment.addresses, deployment.layout, index) for index in range(2)
    )
    assert one.keys() == other.keys()
    assert all(one[name] != other[name] for name in one)
    assert [each["yarn.nodemanager.resource-type.yarn.io/gpu"] for each in (one, other)] == ["4", "2"]
    assert one["yarn.nodemanager.address"] == f"gpu-node-1:{20000 + Port.NM}"


def test_daemon_commands_use_files_of_cluster(deployment):
    for daemon in deployment.spec.daemons:
        command, environment = daemon_command(deployment, daemon), daemon_environment(deployment, daemon)
        assert command[0] == "/java/bin/java"
        assert command[command.index("-cp") + 1] == f"{deployment.layout.conf}:/jars/*"
        assert f"-Djdk.net.hosts.file={deployment.layout.hosts}" in command
        assert environment[MARK] == "c0ffee"
        assert environment["HADOOP_CONF_DIR"] == str(deployment.layout.conf)
        assert environment["JAVA_HOME"] == "/java"
    assert daemon_environment(deployment, node_manager("gpu-node-2"))[NODE_MARK] == "gpu-node-2"
    assert NODE_MARK not in daemon_environment(deployment, NAMENODE)
    options = daemon_command(deployment, node_manager("gpu-node-2"))
    assert ("-D", "yarn.nodemanager.hostname=gpu-node-2") in itertools.pairwise(options)


def test_format_and_refresh_use_same_programs(deployment):
    assert format_command(deployment)[-3:] == ["-format", "-force", "-nonInteractive"]
    assert refresh_nodes_command(deployment, None)[-1] == "-refreshNodes"
    assert refresh_nodes_command(deployment, 60)[-4:] == ["-refreshNodes", "-g", "60", "-server"]


def test_scripts_refuse_unknown_commands(written):
    for name in ("yarn", "hdfs"):
        script = written.layout.bin / name
        subprocess.run(["sh", "-n", script], check=True)
        done = subprocess.run([script, "nonsense"], capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout) == (2, "")
        assert "first argument must be one of" in done.stderr


def test_environment_of_caller_is_not_inherited(deployment, monkeypatch):
    monkeypatch.setenv("HADOOP_OPTS", "-Dx=y")
    monkeypatch.setenv("HADOOP_CONF_DIR", "/elsewhere")
    environment = daemon_environment(deployment, NAMENODE)
    assert "HADOOP_OPTS" not in environment
    assert environment["HADOOP_CONF_DIR"] == str(deployment.layout.conf)


@pytest.mark.parametrize("gpus", [(), (4, -1), (1000,), (1,) * 51])
def test_impossible_clusters_are_refused(gpus):
    with pytest.raises(InputError, match="cannot be"):
        ClusterSpec(gpus=gpus)


def test_kerberos_is_set_for_daemons_and_clients(deployment):
    kerberos = Kerberos(
        realm="R", krb5_conf="/a b/krb5.conf", keytab="/k", proxy_user="t", proxied="alice,bob", token_life_s=20
    )
    secure = replace(deployment, spec=replace(deployment.spec, kerberos=kerberos))
    make_folders(secure.layout, configuration_files(secure.spec, secure.addresses, secure.layout), {})
    site = HadoopConfiguration.load(secure.layout.conf)
    principals = {name: site.get(name) for name in site.names() if name.endswith("principal")}
    assert {value.partition("@")[0] for value in principals.values()} == set(PRINCIPALS)
    assert len(principals) == 6 and all(value.endswith("@R") for value in principals.values())
    assert {site.get(name) for name in site.names() if "keytab" in name} == {"/k"}
    assert site.get("dfs.namenode.delegation.token.renew-interval") == "20000"
    assert site.get("hadoop.proxyuser.t.users") == "alice,bob"
    assert site.get("yarn.log-aggregation-enable", "false") == "false"
    option = "-Djava.security.krb5.conf=/a b/krb5.conf"
    assert all(option in daemon_command(secure, daemon) for daemon in secure.spec.daemons)
    exports = DevCluster(secure, DaemonSet(secure, {})).exports
    assert shlex.split(exports["THEMIS_HADOOP_JVM_OPTIONS"]) == [option]
    assert "HADOOP_USER_NAME" not in exports


def test_proxy_users_are_off_by_default(deployment):
    kerberos = Kerberos(realm="R", krb5_conf="/c", keytab="/k")
    assert not any("proxyuser" in name for name in kerberos.core_site())
