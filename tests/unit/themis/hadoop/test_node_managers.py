"""What NodeManagers say still runs of an application."""

import http.server
import json
import threading

import pytest

from themis.hadoop.node_managers import NodesReply, living_containers

CONTAINERS = [
    {"id": "container_e17_1700000000000_1000_01_000001", "state": "RUNNING"},
    {"id": "container_1700000000000_1000_01_000002", "state": "DONE"},
    {"id": "container_1700000000000_10000_01_000001", "state": "RUNNING"},
]


@pytest.fixture
def node():
    """A NodeManager's web service; its address."""

    class Service(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            assert self.path == "/ws/v1/node/containers"
            self.send_response(200)
            self.end_headers()
            self.wfile.write(json.dumps({"containers": {"container": CONTAINERS}}).encode())

        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Service) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_only_running_containers_of_the_application_are_listed(node):
    expected = NodesReply(living=(CONTAINERS[0]["id"],))
    assert living_containers([node], "application_1700000000000_1000") == expected
    assert living_containers([node], "application_1700000000000_100") == NodesReply()


def test_a_node_that_does_not_answer_is_silent(node):
    nobody = "127.0.0.1:1"
    expected = NodesReply(living=(CONTAINERS[0]["id"],), silent=(nobody,))
    assert living_containers([nobody, node], "application_1700000000000_1000") == expected
