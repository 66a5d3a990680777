"""The development cluster as an object: daemons killed and started again, nodes decommissioned, containers found."""

import json
import os
import subprocess
import urllib.request

import pytest
from waiting import wait_until

from themis.errors import UnknownNameError
from themis.processes import find_marked
from themis_lab.devcluster.configuration import MARK, NODE_MARK
from themis_lab.devcluster.processes import working_below
from themis_lab.devcluster.spec import DATANODE, NAMENODE, RESOURCE_MANAGER, node_manager
from themis_lab.devcluster.web import HdfsState, make_folder

NODE = "gpu-node-3"


def test_everything_is_up_with_its_gpus(cluster):
    assert cluster.is_ready()
    assert {host: report.gpus for host, report in cluster.nodes().items()} == cluster.node_gpus
    assert list(cluster.node_gpus.values()) == [4, 4, 2]
    assert cluster.hdfs() is HdfsState.READY
    assert None not in cluster.daemons().values()


def test_a_killed_node_is_lost_and_comes_back(breakable_cluster):
    cluster = breakable_cluster
    cluster.kill(node_manager(NODE))
    assert cluster.daemons()[node_manager(NODE)] is None
    assert not cluster.is_ready()
    cluster.wait_for_node(NODE, "LOST")
    cluster.start_daemon(node_manager(NODE))
    assert cluster.nodes()[NODE].state == "RUNNING"
    assert cluster.is_ready()


def test_a_killed_resource_manager_finds_its_nodes_again(breakable_cluster):
    cluster = breakable_cluster
    cluster.kill(RESOURCE_MANAGER)
    assert cluster.nodes() == {}
    cluster.start_daemon(RESOURCE_MANAGER)
    assert {report.state for report in cluster.nodes().values()} == {"RUNNING"}


def test_restarted_hdfs_keeps_its_files(breakable_cluster):
    cluster = breakable_cluster
    make_folder(cluster.namenode_web, "/kept", cluster.deployment.spec.user, "700")
    for daemon in (DATANODE, NAMENODE):
        cluster.kill(daemon)
    assert cluster.hdfs() is HdfsState.AWAY
    cluster.restore()
    assert cluster.hdfs() is HdfsState.READY
    assert "/kept" in command(cluster, "hdfs", "dfs", "-ls", "/").stdout


def test_a_decommissioned_node_ends_and_comes_back(breakable_cluster):
    cluster = breakable_cluster
    cluster.decommission(NODE)
    assert cluster.nodes()[NODE].state == "DECOMMISSIONED"
    wait_until(lambda: cluster.daemons()[node_manager(NODE)] is None)
    cluster.recommission(NODE)
    assert cluster.is_ready()


def test_a_node_that_is_decommissioned_gracefully_goes_on_until_its_containers_end(breakable_cluster):
    cluster = breakable_cluster
    app = submit(cluster, "sleep 300")
    host = wait_until(lambda: host_with_containers(cluster))
    cluster.decommission(host, graceful_s=60)
    assert cluster.nodes()[host].state == "DECOMMISSIONING"
    assert host_with_containers(cluster) == host
    kill(cluster, app)
    cluster.wait_for_node(host, "DECOMMISSIONED")


def test_mending_brings_everything_back(breakable_cluster):
    cluster = breakable_cluster
    cluster.decommission("gpu-node-1")
    cluster.kill_node("gpu-node-2")
    cluster.kill(RESOURCE_MANAGER)
    assert not cluster.is_ready()
    cluster.restore()
    assert cluster.is_ready()


def test_unknown_daemons_and_nodes_are_refused(cluster):
    with pytest.raises(UnknownNameError, match=r"unknown daemon.*did you mean 'namenode'"):
        cluster.kill("namenod")
    with pytest.raises(UnknownNameError, match="unknown node"):
        cluster.decommission("elsewhere")


def test_a_node_without_power_has_no_containers(breakable_cluster):
    """Those of a NodeManager that is merely killed live on, also one that hides its environment."""
    cluster = breakable_cluster
    submit(cluster, "setsid env -i sleep 301 & sleep 302")
    host = wait_until(lambda: host_with_containers(cluster))
    below = cluster.deployment.layout.node(host)
    wait_until(lambda: len(containers_on(cluster, host)) >= 1 and len(working_below(below)) >= 2)
    cluster.kill(node_manager(host))
    assert containers_on(cluster, host)
    hidden = {process.pid for process in working_below(below)} - set(containers_on(cluster, host))
    assert hidden
    cluster.kill_node(host)
    assert containers_on(cluster, host) == working_below(below) == ()


def test_hadoops_own_commands_know_the_cluster(cluster):
    listed = command(cluster, "yarn", "node", "-list")
    assert all(host in listed.stdout for host in cluster.node_gpus), listed.stderr
    refused = command(cluster, "yarn", "nonsense", exit_code=2)
    assert "must be one of: application" in refused.stderr


def test_yarn_logs_shows_container_output(cluster):
    app = submit(cluster, "echo it was here")
    # The ResourceManager says that logs are collected when their file in HDFS is not closed yet.
    wait_until(lambda: "it was here" in run(cluster, "yarn", "logs", "-applicationId", app).stdout)


def test_links_of_the_resource_manager_lead_to_it(cluster):
    app = submit(cluster, "true")
    wait_until(lambda: application(cluster, app)["state"] == "FAILED")
    assert application(cluster, app)["trackingUrl"].startswith(f"{cluster.rm_web}/")


def command(cluster, *words, exit_code=0):
    done = run(cluster, *words)
    assert done.returncode == exit_code, done.stderr
    return done


def run(cluster, *words):
    environment = {**os.environ, **cluster.exports, "PATH": f"{cluster.bin_dir}:{os.environ['PATH']}"}
    return subprocess.run(words, env=environment, capture_output=True, text=True, timeout=60, check=False)


def submit(cluster, line):
    """An app whose only container, that of an app master which never registers, runs a shell's line; its id."""
    app = rest(cluster, "POST", "apps/new-application")["application-id"]
    description = {
        "application-id": app,
        "application-name": "test",
        "application-type": "TEST",
        "queue": "default",
        "max-app-attempts": 1,
        "am-container-spec": {"commands": {"command": f"({line}) 1><LOG_DIR>/stdout"}},
        "resource": {"memory": 64, "vCores": 1},
    }
    rest(cluster, "POST", "apps", description)
    return app


def kill(cluster, app):
    rest(cluster, "PUT", f"apps/{app}/state", {"state": "KILLED"})


def application(cluster, app):
    return rest(cluster, "GET", f"apps/{app}")["app"]


def rest(cluster, method, path, body=None):
    url = f"{cluster.rm_web}/ws/v1/cluster/{path}?user.name={cluster.deployment.spec.user}"
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, method=method, data=data, headers={"Content-Type": "application/json"})
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=30) as answer:
        text = answer.read()
    return json.loads(text) if text else None


def containers_on(cluster, host):
    """Ids of the processes that carry the node's mark, its NodeManager left out."""
    found = find_marked({MARK: cluster.deployment.identity, NODE_MARK: host})
    return tuple(pid for pid in found if pid != cluster.daemons()[node_manager(host)])


def host_with_containers(cluster):
    return next((host for host in cluster.node_gpus if containers_on(cluster, host)), None)
