"""The WebHDFS client with an HDFS in memory that fails on request."""

import threading
import time

import pytest
from fake_webhdfs import Server

from themis.errors import InputError, UnreachableError
from themis.hadoop.errors import LoginError
from themis.hadoop.login_tokens import LoginTokens
from themis.hadoop.webhdfs import PIECE_BYTES, open_webhdfs
from themis.hadoop.webhdfs_errors import HdfsExistsError, HdfsMissingError, HdfsRefusedError, HdfsUnreachableError
from themis.hadoop.webhdfs_retry import RetryRule
from themis.hadoop.webhdfs_token import IssuedToken

QUICK = RetryRule(first_wait_s=0.01, longest_wait_s=0.05, deadline_s=30.0)
SHORT = RetryRule(first_wait_s=0.01, deadline_s=0.1)


@pytest.fixture
def server():
    server = Server()
    yield server
    server.stop()


@pytest.fixture
def hdfs(server):
    return open_webhdfs(server.uri(), rule=QUICK, environment={"HADOOP_USER_NAME": "alice"})[0]


def test_files_and_folders(server, hdfs):
    hdfs.make_folders("/ck/a b")
    hdfs.create("/ck/a b/ä+&%20", lambda: iter([b"one", b"two"]))
    hdfs.create("/ck/a b/c", lambda: b"")
    assert [(each.name, each.folder, each.size_bytes) for each in hdfs.list("/ck/a b")] == [
        ("c", False, 0),
        ("ä+&%20", False, 6),
    ]
    assert hdfs.read_whole("/ck/a b/ä+&%20") == b"onetwo"
    assert hdfs.read_whole("/ck/a b/c") == b""
    assert hdfs.status("/ck/a b").folder
    assert hdfs.status("/ck/none") is None
    assert hdfs.delete("/ck/a b") and not hdfs.delete("/ck/a b")
    with pytest.raises(HdfsMissingError):
        hdfs.list("/ck/a b")
    assert server.hdfs.users == {"alice"}


def test_a_new_file_has_a_new_id(hdfs):
    hdfs.create("/f", lambda: b"1")
    first = hdfs.status("/f")
    hdfs.create("/f", lambda: b"2")
    assert hdfs.status("/f") != first
    assert hdfs.read_whole("/f") == b"2"


def test_a_file_is_written_from_its_beginning_after_a_cut(server, hdfs):
    server.hdfs.fail("CREATE", cut_after=1500, times=2)
    hdfs.create("/f", lambda: iter([b"x" * 1000] * 5))
    assert server.hdfs.files() == {"/f": b"x" * 5000}


@pytest.mark.parametrize("times", [1, 3])
def test_reading_goes_on_where_it_stopped(server, hdfs, times):
    content = bytes(range(256)) * 40_000
    server.hdfs.put("/f", content)
    server.hdfs.fail("OPEN", cut_after=2_500_000, times=times)
    assert b"".join(hdfs.read("/f", len(content))) == content
    assert server.hdfs.sent_bytes <= len(content) + times * PIECE_BYTES, "more than a piece was read again"


def test_a_file_shorter_than_promised_is_not_passed_off_as_whole(server):
    server.hdfs.put("/f", b"short")
    hdfs, _ = open_webhdfs(server.uri(), rule=SHORT)
    with pytest.raises((HdfsUnreachableError, HdfsRefusedError)):
        list(hdfs.read("/f", 10))


def test_renames(server, hdfs):
    server.hdfs.put("/a/f", b"1")
    server.hdfs.put("/b/f", b"2")
    with pytest.raises(HdfsExistsError):
        hdfs.rename("/a", "/b")
    hdfs.rename("/a/f", "/b/f", overwrite=True)
    assert server.hdfs.files() == {"/b/f": b"1"}
    with pytest.raises(HdfsMissingError):
        hdfs.rename("/a/f", "/b/f", overwrite=True)


def test_a_rename_whose_reply_is_lost_has_been_done(server, hdfs):
    server.hdfs.put("/a/f", b"1")
    server.hdfs.fail("RENAME", lost_reply=True)
    hdfs.rename("/a", "/b")
    assert server.hdfs.files() == {"/b/f": b"1"}


def test_joining_files(server, hdfs):
    for name in "abc":
        server.hdfs.put(f"/d/{name}", name.encode())
    server.hdfs.fail("CONCAT", lost_reply=True)
    hdfs.concat("/d/a", ["/d/b", "/d/c"], 3)
    assert server.hdfs.files() == {"/d/a": b"abc"}
    with pytest.raises(HdfsMissingError):
        hdfs.concat("/d/a", ["/d/b"], 4)


@pytest.mark.parametrize("exception", ["SafeModeException", "StandbyException", "RetriableException"])
def test_a_name_node_that_is_not_ready_is_waited_for(server, hdfs, exception):
    server.hdfs.fail("MKDIRS", exception=exception, times=3)
    hdfs.make_folders("/a")
    assert "/a" in server.hdfs.nodes


@pytest.mark.parametrize("status", [502, 503, 504])
def test_a_gateway_without_a_name_node_is_waited_for(server, hdfs, status):
    server.hdfs.fail("MKDIRS", plain=True, status=status, times=3)
    hdfs.make_folders("/a")
    assert "/a" in server.hdfs.nodes


def test_a_name_node_that_dies_and_comes_back(server, hdfs):
    hdfs.make_folders("/a")
    server.stop()
    back = threading.Timer(0.3, server.start)
    back.start()
    hdfs.make_folders("/b")
    back.join()
    assert {"/a", "/b"} <= server.hdfs.nodes.keys()


def test_one_that_stays_away_is_unreachable(server):
    hdfs, _ = open_webhdfs("webhdfs://127.0.0.1:1/ck", rule=SHORT)
    begun_s = time.monotonic()
    with pytest.raises(UnreachableError, match="unreachable") as raised:
        hdfs.make_folders("/a")
    assert time.monotonic() - begun_s < 20.0
    assert raised.value.exit_code == 2


def test_the_active_one_of_two_name_nodes_is_found(server, tmp_path):
    standby = Server()
    standby.hdfs.fail("MKDIRS", exception="StandbyException", times=100)
    properties = {
        "dfs.nameservices": "ns",
        "dfs.ha.namenodes.ns": "a,b",
        "dfs.namenode.http-address.ns.a": f"127.0.0.1:{standby.port}",
        "dfs.namenode.http-address.ns.b": f"127.0.0.1:{server.port}",
    }
    fields = "".join(f"<property><name>{k}</name><value>{v}</value></property>" for k, v in properties.items())
    (tmp_path / "hdfs-site.xml").write_text(f"<configuration>{fields}</configuration>")
    hdfs, path = open_webhdfs("hdfs://ns/ck", rule=QUICK, environment={"HADOOP_CONF_DIR": str(tmp_path)})
    hdfs.make_folders(path)
    assert "/ck" in server.hdfs.nodes
    assert "/ck" not in standby.hdfs.nodes
    standby.stop()


def test_refusals_are_raised_at_once(server, hdfs):
    server.hdfs.fail("MKDIRS", exception="AccessControlException", message="Permission denied: user=alice")
    with pytest.raises(HdfsRefusedError, match="'/a'; Permission denied: user=alice"):
        hdfs.make_folders("/a")
    hdfs.make_folders("/a")


def test_something_else_on_that_port(server, hdfs):
    server.hdfs.fail("MKDIRS", plain=True, status=404)
    with pytest.raises(HdfsRefusedError, match="<html>"):
        hdfs.make_folders("/a")


def test_a_missing_configuration_is_refused():
    with pytest.raises(InputError, match="HADOOP_CONF_DIR"):
        open_webhdfs("hdfs:///a", environment={"HADOOP_CONF_DIR": "/nowhere"})


class TestWithKerberos:
    """Requests have the token that a login gives; the login itself is a fake here."""

    @pytest.fixture
    def issued(self, tmp_path, monkeypatch):
        """Tokens and errors that the login gives next; each token is good for no time at all."""
        issued = []
        self.file_systems = []
        kerberos = "<property><name>hadoop.security.authentication</name><value>kerberos</value></property>"
        (tmp_path / "core-site.xml").write_text(f"<configuration>{kerberos}</configuration>")

        def fetch():
            given = issued.pop(0)
            if isinstance(given, Exception):
                raise given
            return IssuedToken(text=given, life_s=0.0)

        def login_tokens(file_system, environment):
            self.file_systems.append(file_system)
            assert environment == {"HADOOP_CONF_DIR": str(tmp_path)}
            return LoginTokens(fetch)

        monkeypatch.setattr("themis.hadoop.webhdfs.login_tokens", login_tokens)
        return issued

    @pytest.fixture
    def hdfs(self, server, tmp_path, issued):
        return open_webhdfs(server.uri(), rule=QUICK, environment={"HADOOP_CONF_DIR": str(tmp_path)})[0]

    def test_each_request_has_the_token_of_the_moment(self, server, hdfs, issued):
        assert self.file_systems == [server.uri("")]
        issued += ["one", "two", "three"]
        hdfs.make_folders("/ck")
        assert hdfs.status("/ck").folder
        hdfs.list("/ck")
        assert server.hdfs.tokens == ["one", "two", "three"]
        assert server.hdfs.users == {""}

    def test_a_login_waits_for_a_name_node_that_is_away(self, server, hdfs, issued):
        issued += [UnreachableError("away"), UnreachableError("away"), "one"]
        hdfs.make_folders("/ck")
        assert server.hdfs.tokens == ["one"]

    def test_a_login_that_is_refused_is_not_tried_again(self, server, hdfs, issued):
        issued.append(LoginError("no such keytab"))
        with pytest.raises(LoginError, match="no such keytab"):
            hdfs.make_folders("/ck")
        assert server.hdfs.tokens == []
