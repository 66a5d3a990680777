"""The readiness of a cluster, from its daemons' answers over HTTP."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlparse

import pytest

from themis_lab.devcluster.errors import DevClusterError
from themis_lab.devcluster.readiness import wait_until_none, what_is_missing
from themis_lab.devcluster.spec import DATANODE, NAMENODE, RESOURCE_MANAGER, ClusterSpec, node_manager
from themis_lab.devcluster.web import HdfsState, NoAnswerError, NodeReport, hdfs_state, make_folder, node_reports

SPEC = ClusterSpec(gpus=(4, 2), user="someone")
ALL = dict.fromkeys(SPEC.daemons, 0.0)


def report(state="RUNNING", gpus=4, health_at_s=100.0):
    return NodeReport(state=state, gpus=gpus, gpus_used=0, health_at_s=health_at_s)


UP = {"gpu-node-1": report(), "gpu-node-2": report(gpus=2)}


def test_cluster_is_ready_if_hdfs_and_all_nodes_are():
    assert what_is_missing(SPEC, ALL, HdfsState.READY, UP) is None
    assert what_is_missing(SPEC, ALL, HdfsState.SAFE_MODE, UP) == "HDFS: safe mode"
    assert what_is_missing(SPEC, ALL, HdfsState.READY, {}) == "YARN: 0 of 2 nodes"


@pytest.mark.parametrize("wrong", [report("LOST"), report("UNHEALTHY"), report(gpus=3), report(health_at_s=99.0)])
def test_node_is_ready_if_running_with_gpus_since_start(wrong):
    since_s = {**ALL, node_manager("gpu-node-1"): 100.0}
    assert what_is_missing(SPEC, since_s, HdfsState.READY, UP) is None
    assert what_is_missing(SPEC, since_s, HdfsState.READY, {**UP, "gpu-node-1": wrong}) == "YARN: 1 of 2 nodes"


def test_stopped_daemon_is_not_waited_for():
    without = {daemon: since for daemon, since in ALL.items() if daemon != node_manager("gpu-node-2")}
    assert what_is_missing(SPEC, without, HdfsState.READY, {"gpu-node-1": report()}) is None
    assert what_is_missing(SPEC, {NAMENODE: 0.0}, HdfsState.NO_DATANODE, {}) is None
    assert what_is_missing(SPEC, {NAMENODE: 0.0, DATANODE: 0.0}, HdfsState.READY, {}) is None
    assert what_is_missing(SPEC, {RESOURCE_MANAGER: 0.0}, HdfsState.AWAY, {}) == "YARN: 0 of 0 nodes"


def test_wait_reports_each_missing_part_once_and_times_out():
    answers = iter(["a", "a", "b", None])
    said = []
    wait_until_none(lambda: next(answers), limit_s=10, trouble="t", say=said.append)
    assert said == ["a", "b"]
    with pytest.raises(DevClusterError, match="it is not there: 'c'"):
        wait_until_none(lambda: "c", limit_s=0, trouble="it is not there", say=said.append)


# ---- HTTP -----------------------------------------------------------------------------------------------------------


def resource(gpus):
    parts = [{"name": "memory-mb", "value": 9}, {"name": "yarn.io/gpu", "value": gpus}]
    return {"resourceInformations": {"resourceInformation": parts}}


NODES = {
    "nodes": {
        "node": [
            {
                "nodeHostName": "one",
                "state": "RUNNING",
                "lastHealthUpdate": 1500,
                "totalResource": resource(4),
                "usedResource": resource(3),
            },
            # A lost node has nothing in use, and may have said nothing yet.
            {"nodeHostName": "two", "state": "LOST", "totalResource": resource(2)},
        ]
    }
}


class Daemon(BaseHTTPRequestHandler):
    """Answers from the server's `answers`, by path or by name of a bean."""

    def do_GET(self):
        url = urlparse(self.path)
        name = parse_qs(url.query).get("qry", [url.path])[0]
        self.server.asked.append(self.path)
        text = json.dumps(self.server.answers.get(name, {})).encode()
        self.send_response(self.server.status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    do_PUT = do_GET  # noqa: N815 - the name that http.server looks for

    def log_message(self, *_):
        pass


@pytest.fixture
def daemon(monkeypatch):
    # A proxy that the environment names must not be asked for loopback addresses.
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.delenv("no_proxy", raising=False)
    with ThreadingHTTPServer(("127.0.0.1", 0), Daemon) as server:
        server.answers, server.asked, server.status = {}, [], 200
        server.url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def test_nodes_are_read_with_gpus(daemon):
    daemon.answers["/ws/v1/cluster/nodes"] = NODES
    assert node_reports(daemon.url) == {
        "one": NodeReport(state="RUNNING", gpus=4, gpus_used=3, health_at_s=1.5),
        "two": NodeReport(state="LOST", gpus=2, gpus_used=0, health_at_s=0.0),
    }
    daemon.answers["/ws/v1/cluster/nodes"] = {"nodes": None}
    assert node_reports(daemon.url) == {}


@pytest.mark.parametrize(
    ("status", "info", "state"),
    [
        ({"State": "standby"}, {}, HdfsState.AWAY),
        ({"State": "active"}, {"Safemode": "is on"}, HdfsState.SAFE_MODE),
        ({"State": "active"}, {"Safemode": "", "LiveNodes": "{}"}, HdfsState.NO_DATANODE),
        ({"State": "active"}, {"Safemode": "", "LiveNodes": '{"d": {}}'}, HdfsState.READY),
    ],
)
def test_hdfs_is_ready_if_writable(daemon, status, info, state):
    for name, bean in (("NameNodeStatus", status), ("NameNodeInfo", info)):
        daemon.answers[f"Hadoop:service=NameNode,name={name}"] = {"beans": [bean]}
    assert hdfs_state(daemon.url) is state


def test_silent_hdfs_is_unreachable(daemon):
    assert hdfs_state(daemon.url) is HdfsState.AWAY
    assert hdfs_state("http://127.0.0.1:9") is HdfsState.AWAY


def test_folders_are_created_as_user(daemon):
    make_folder(daemon.url, "/a b", "someone", "755")
    assert daemon.asked == [
        "/webhdfs/v1/a%20b?op=MKDIRS&user.name=someone",
        "/webhdfs/v1/a%20b?op=SETPERMISSION&permission=755&user.name=someone",
    ]
    daemon.status = 403
    with pytest.raises(NoAnswerError, match="403"):
        make_folder(daemon.url, "/a", "someone", "755")
