"""Shared folders: files appear whole, in one step, and for one creator only."""

import pytest
from fake_webhdfs import Server
from shared_folder_cases import MemoryFolder

from rm_plugin.engines.shared_folder import FileSystemFolder
from rm_plugin.engines.yarn_folder import HdfsFolder
from themis.errors import UnreachableError
from themis.hadoop.webhdfs import open_webhdfs
from themis.hadoop.webhdfs_retry import RetryRule


@pytest.fixture(params=["memory", "files", "hdfs"])
def folder(request, tmp_path):
    if request.param == "hdfs":
        server = Server()
        yield HdfsFolder(*open_webhdfs(server.uri("/themis/shared"), rule=RetryRule(deadline_s=0.1)))
        server.stop()
    else:
        yield MemoryFolder() if request.param == "memory" else FileSystemFolder(tmp_path / "new" / "shared")


def names(folder):
    return [file.name for file in folder.list()]


def test_files_are_listed_by_name_and_read(folder):
    assert names(folder) == []
    assert folder.create("b", b"two") and folder.create("a", b"one")
    assert names(folder) == ["a", "b"]
    assert folder.read("a") == b"one" and folder.read("c") is None


def test_a_file_that_exists_is_not_replaced(folder):
    folder.create("a", b"one")
    assert not folder.create("a", b"other")
    assert folder.read("a") == b"one" and names(folder) == ["a"]


def test_a_touch_changes_the_time_of_a_file(folder):
    folder.create("a", b"")
    before = folder.list()
    for _ in range(3):
        folder.touch("a")
    assert folder.list() != before
    folder.touch("missing")
    assert names(folder) == ["a"]


def test_a_deleted_file_is_gone(folder):
    folder.create("a", b"")
    folder.delete("a")
    folder.delete("a")
    assert names(folder) == []
    assert folder.create("a", b"again")


def test_halves_of_files_are_hidden_and_removed(tmp_path):
    folder = FileSystemFolder(tmp_path)
    folder.create("a", b"")
    (tmp_path / ".cut-off").write_bytes(b"half")
    assert names(folder) == ["a"]
    folder.tidy()
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_halves_of_files_on_hdfs_are_hidden_and_removed():
    server = Server()
    hdfs, path = open_webhdfs(server.uri("/themis/shared"), rule=RetryRule(deadline_s=0.1))
    folder = HdfsFolder(hdfs, path)
    folder.create("a", b"")
    hdfs.create(f"{path}/.cut-off", lambda: b"half")
    assert names(folder) == ["a"]
    folder.tidy()
    assert [status.name for status in hdfs.list(path)] == ["a"]
    server.stop()


def test_only_its_owner_can_read_a_folder_on_hdfs_but_not_only_the_one_above():
    """The state in it has the variables of apps. Above it are the packages, which other users' containers read."""
    server = Server()
    hdfs, path = open_webhdfs(server.uri("/themis/resource-manager"), rule=RetryRule(deadline_s=0.1))
    assert names(HdfsFolder(hdfs, path)) == []
    assert server.hdfs.permissions == {"/themis/resource-manager": "700"}
    assert "/themis" in server.hdfs.nodes
    server.stop()


def test_a_folder_that_cannot_be_used_is_unreachable(tmp_path):
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(UnreachableError, match="cannot be used"):
        FileSystemFolder(tmp_path / "file" / "folder").list()
