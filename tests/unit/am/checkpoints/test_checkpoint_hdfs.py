"""The HDFS store against an HDFS in memory: broken connections, rivals, leftovers, and what is read how often."""

import os
import threading

import pytest
from fake_webhdfs import Server

from am.checkpoints import CheckpointError, hdfs_upload
from am.checkpoints.hdfs import LEFTOVER_AGE_S, WRITING_PREFIX, HdfsStore
from am.checkpoints.manifest import CHUNK_BYTES
from am.checkpoints.store import FullStoreError, UnreachableStoreError
from tf_jobs.recorder import restore
from themis.hadoop.webhdfs import open_webhdfs
from themis.hadoop.webhdfs_retry import RetryRule

PART_BYTES = 100_000
QUICK = RetryRule(first_wait_s=0.01, longest_wait_s=0.05, deadline_s=30.0)
SHORT = RetryRule(first_wait_s=0.01, deadline_s=0.1)


@pytest.fixture
def server():
    server = Server()
    yield server
    server.stop()


@pytest.fixture
def hdfs(server):
    return server.hdfs


def new_store(server, rule=QUICK):
    client, root = open_webhdfs(server.uri(), rule=rule)
    return HdfsStore(client, root, part_bytes=PART_BYTES)


@pytest.fixture
def store(server):
    return new_store(server)


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "source"
    path.write_bytes(os.urandom(3 * PART_BYTES + 7))
    return path


def left(hdfs):
    return [path for path in hdfs.nodes if WRITING_PREFIX in path]


@pytest.mark.parametrize("size", [0, 1, PART_BYTES - 1, PART_BYTES, PART_BYTES + 1, 2 * PART_BYTES, 120 * PART_BYTES])
def test_files_of_every_size_come_back(store, hdfs, tmp_path, size):
    (tmp_path / "f").write_bytes(os.urandom(size))
    saved = store.save("j", 1, {"f": tmp_path / "f"}, {})
    assert saved.files[0].size_bytes == size
    store.fetch(saved, tmp_path / "out")
    assert (tmp_path / "out" / "f").read_bytes() == (tmp_path / "f").read_bytes()
    assert sorted(hdfs.files()) == ["/ck/j/000000000001/f", "/ck/j/000000000001/manifest.json"]


def test_upload_retries_only_broken_part(server, store, hdfs, source):
    hdfs.fail("CREATE", cut_after=PART_BYTES // 2, match=".00002", times=2)
    saved = store.save("j", 1, {"f": source}, {})
    assert hdfs.files()[f"{'/ck/j/000000000001'}/f"] == source.read_bytes()
    written = [path.rpartition("/")[2] for op, path in hdfs.requests if op == "CREATE"]
    assert written == ["f", ".f.00001", ".f.00002", ".f.00002", ".f.00002", ".f.00003", "manifest.json"]
    assert new_store(server).is_whole(saved)


def test_a_name_node_that_restarts_in_the_middle(server, store, hdfs, source):
    hdfs.fail("CREATE", cut_after=1, match=".00001")
    threading.Timer(0.05, server.stop).start()
    back = threading.Timer(0.4, server.start)
    back.start()
    for iteration in range(1, 8):
        saved = store.save("j", iteration, {"f": source}, {})
    back.join()
    assert new_store(server).latest("j") == saved


@pytest.mark.parametrize("op", ["RENAME", "CONCAT", "MKDIRS", "CREATE"])
def test_a_lost_reply_costs_nothing(server, store, hdfs, source, op):
    hdfs.fail(op, lost_reply=True)
    saved = store.save("j", 1, {"f": source}, {})
    assert new_store(server).latest("j") == saved
    assert not left(hdfs)


def test_an_encryption_zone_gets_its_files_in_one(server, store, hdfs, source):
    hdfs.joins = False
    saved = store.save("j", 1, {"f": source}, {})
    assert new_store(server).latest("j") == saved
    assert len(hdfs.files()) == 2


def test_unreachable_store_raises_one_error(server, source):
    store = new_store(server, SHORT)
    store.save("j", 1, {"f": source}, {})
    server.stop()
    for call in (
        lambda: store.save("j", 2, {"f": source}, {}),
        lambda: store.latest("j"),
        lambda: store.latest_iteration("j"),
        lambda: store.prune("j"),
    ):
        with pytest.raises(UnreachableStoreError, match="HDFS has been unreachable") as raised:
            call()
        assert isinstance(raised.value, CheckpointError)
        assert raised.value.exit_code == 2
    server.start()


def test_a_failed_save_leaves_nothing(store, hdfs, source, tmp_path):
    with pytest.raises(CheckpointError, match="nowhere"):
        store.save("j", 1, {"f": source, "g": tmp_path / "nowhere"}, {})
    assert not hdfs.files() and not left(hdfs)


def test_permission_error_has_path(store, hdfs, source):
    hdfs.fail("MKDIRS", exception="AccessControlException", message="Permission denied: user=x")
    with pytest.raises(CheckpointError, match=r"/ck/j/.*Permission denied"):
        store.save("j", 1, {"f": source}, {})


@pytest.mark.parametrize("exception", ["DSQuotaExceededException", "NSQuotaExceededException"])
def test_quota_that_is_used_up_is_a_full_store(store, hdfs, source, exception):
    hdfs.fail("CREATE", exception=exception, message="The quota of /ck is exceeded", times=99)
    with pytest.raises(FullStoreError):
        store.save("j", 1, {"f": source}, {})


def test_only_old_hidden_folders_are_removed(store, hdfs, source):
    hdfs.put("/ck/j/.writing-000000000001-dead/f", b"half")
    hdfs.now_ms += int(LEFTOVER_AGE_S * 1000)
    hdfs.put("/ck/j/.writing-000000000001-alive/f", b"half")
    store.save("j", 2, {"f": source}, {})
    assert left(hdfs) == ["/ck/j/.writing-000000000001-alive/f", "/ck/j/.writing-000000000001-alive"]
    assert store.jobs() == ("j",)
    assert [each.iteration for each in store.checkpoints("j")] == [2]


def test_first_of_two_writers_wins(server, store, hdfs, tmp_path, monkeypatch):
    """The second begins before the first has ended, so neither sees the other's until it renames."""
    first, second = tmp_path / "1", tmp_path / "2"
    first.write_bytes(b"first")
    second.write_bytes(b"second")
    rival = new_store(server)

    def beaten(*arguments, **named):
        monkeypatch.undo()
        record = hdfs_upload.upload(*arguments, **named)
        rival.save("j", 1, {"f": first}, {})
        return record

    monkeypatch.setattr("am.checkpoints.hdfs.upload", beaten)
    assert store.save("j", 1, {"f": second}, {}) == rival.latest("j")
    assert hdfs.files()["/ck/j/000000000001/f"] == b"first"
    assert not left(hdfs)


def test_save_returns_rival_checkpoint_if_rename_reply_is_lost(server, store, hdfs, source, tmp_path):
    """Our hidden folder was swept, the other's took the name: the retried rename finds no source and a target."""
    (tmp_path / "theirs").write_bytes(b"theirs")
    rival = new_store(server)
    theirs = []

    def lost(staged, final):
        hdfs.nodes = {path: node for path, node in hdfs.nodes.items() if not path.startswith(staged)}
        theirs.append(rival.save("j", 1, {"f": tmp_path / "theirs"}, {}))

    store._hdfs.rename = lost
    assert store.save("j", 1, {"f": source}, {}) == theirs[0]
    assert rival.latest("j") == theirs[0]


def test_save_makes_no_needless_requests(store, hdfs, source, tmp_path):
    (tmp_path / "small").write_bytes(b"x")
    for iteration in (1, 2):
        store.save("j", iteration, {"f": source}, {})
    hdfs.requests.clear()
    store.save("j", 3, {"f": tmp_path / "small"}, {})
    wanted = ["LISTSTATUS", "MKDIRS", "CREATE", "CREATE", "LISTSTATUS", "RENAME", "LISTSTATUS"]
    assert [op for op, _ in hdfs.requests] == wanted


def test_many_writers_at_once_end_with_one_whole_checkpoint(server, hdfs, source):
    stores = [new_store(server) for _ in range(6)]
    saved = []
    threads = [
        threading.Thread(target=lambda one=one: saved.append(one.save("j", 1, {"f": source}, {}))) for one in stores
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(saved) == 6 and len({each.location for each in saved}) == 1
    assert new_store(server).latest("j") == saved[0]
    assert not left(hdfs)


def test_removed_staged_folder_never_becomes_checkpoint(store, hdfs, source, monkeypatch):
    def swept(client, path, target, **named):
        record = hdfs_upload.upload(client, path, target, **named)
        if target.endswith("/a"):
            with hdfs.lock:
                del hdfs.nodes[target]
        return record

    monkeypatch.setattr("am.checkpoints.hdfs.upload", swept)
    with pytest.raises(CheckpointError, match="differ from those on HDFS"):
        store.save("j", 1, {"a": source, "b": source}, {})
    assert store.latest("j") is None
    assert not hdfs.files()


def test_incomplete_checkpoint_is_skipped_and_replaced(server, store, hdfs, source):
    store.save("j", 1, {"f": source}, {})
    hdfs.put("/ck/j/000000000002/f", b"no manifest")
    assert store.latest_iteration("j") == 1
    assert store.latest("j").iteration == 1
    saved = store.save("j", 2, {"f": source}, {})
    assert new_store(server).latest("j") == saved


def test_content_is_read_again_only_after_rewrite(server, store, hdfs, source):
    saved = store.save("j", 1, {"f": source}, {})
    size = source.stat().st_size

    def read_by(one):
        before = hdfs.sent_bytes
        found = one.latest("j")
        return found, hdfs.sent_bytes - before

    other = new_store(server)
    found, read = read_by(other)
    assert found == saved and read > size
    for one in (store, other):
        found, read = read_by(one)
        assert found == saved and read < size
    hdfs.put("/ck/j/000000000001/f", os.urandom(size))
    assert read_by(store)[0] is None and read_by(other)[0] is None


def test_a_restarted_job_reads_its_checkpoint_once(server, store, hdfs, source, tmp_path):
    saved = store.save("j", 1, {"f": source}, {})
    size = source.stat().st_size
    restarted = new_store(server)
    before = hdfs.sent_bytes
    assert restore(restarted, "j", tmp_path / "out", {}) == saved
    assert size < hdfs.sent_bytes - before < 1.1 * size
    before = hdfs.sent_bytes
    assert restarted.latest("j") == saved and restarted.save("j", 1, {"f": source}, {}) == saved
    assert hdfs.sent_bytes - before < size / 10


def test_fetch_latest_while_writer_prunes(server, store, hdfs, source, tmp_path):
    store.save("j", 1, {"f": source}, {})
    reader = new_store(server)
    read = reader._read_folder

    def late(folder):
        found = read(folder)
        if folder.endswith("1"):
            store.save("j", 2, {"f": source}, {})
            store.prune("j", 1)
        return found

    reader._read_folder = late
    assert reader.fetch_latest("j", tmp_path / "out").iteration == 2


def test_polling_reads_no_content(store, hdfs, source):
    store.save("j", 1, {"f": source}, {})
    before = hdfs.sent_bytes
    assert store.latest_iteration("j") == 1
    assert hdfs.sent_bytes - before < source.stat().st_size
    assert ("OPEN", "/ck/j/000000000001/f") not in hdfs.requests


def test_a_fetch_goes_on_after_a_cut(store, hdfs, tmp_path):
    (tmp_path / "f").write_bytes(os.urandom(3 * CHUNK_BYTES))
    saved = store.save("j", 1, {"f": tmp_path / "f"}, {})
    hdfs.fail("OPEN", cut_after=2 * CHUNK_BYTES + 5, match="/f")
    store.fetch(saved, tmp_path / "out")
    assert (tmp_path / "out" / "f").read_bytes() == (tmp_path / "f").read_bytes()


def test_latest_while_writer_prunes(server, store, hdfs, source):
    """What was listed is gone when it is read: then a newer one is there."""
    store.save("j", 1, {"f": source}, {})
    reader = new_store(server)
    listed = reader._newest_first

    def late(job_id):
        folders = listed(job_id)
        if folders == ["/ck/j/000000000001"]:
            store.save("j", 2, {"f": source}, {})
            store.prune("j", 1)
        return folders

    reader._newest_first = late
    assert reader.latest("j").iteration == 2


def test_locations_are_uris_as_the_user_wrote_them(server, source):
    from am.checkpoints import open_store

    assert open_store(server.uri("/a")).save("j", 1, {"f": source}, {}).location == server.uri("/a/j/000000000001")
