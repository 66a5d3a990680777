"""Checkpoints and journals on a real HDFS, whose daemons and writers are killed at the wrong moments."""

import json
import os
import signal
import subprocess
import sys
import threading
import uuid
from pathlib import Path

import pytest
from checkpoint_store_cases import CheckpointStoreCases
from waiting import wait_until

from am.checkpoints import CheckpointError, open_store
from am.checkpoints.hdfs import WRITING_PREFIX, HdfsStore
from am.checkpoints.store import UnreachableStoreError
from am.journal import Journal
from themis.hadoop.webhdfs import open_webhdfs
from themis.hadoop.webhdfs_errors import HdfsMissingError
from themis.hadoop.webhdfs_retry import RetryRule
from themis_cli.main import main
from themis_lab.devcluster.spec import DATANODE, NAMENODE

ROOT = Path(__file__).resolve().parents[2]
PART_BYTES = 1 << 20
SIZE_BYTES = 40 << 20


@pytest.fixture(autouse=True)
def _client(cluster, monkeypatch):
    for name, value in cluster.exports.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def uri(cluster):
    return f"{cluster.fs_uri}/tmp/store-{uuid.uuid4().hex}"


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "source"
    path.write_bytes(os.urandom(SIZE_BYTES))
    return path


def store_of(uri, **options):
    hdfs, root = open_webhdfs(uri)
    return HdfsStore(hdfs, root, part_bytes=PART_BYTES, **options)


def files_below(uri, folder=""):
    """Path below the URI's folder to size, of every file there."""
    hdfs, root = open_webhdfs(uri)
    found = {}
    todo = [root + folder]
    while todo:
        path = todo.pop()
        try:
            entries = hdfs.list(path)
        except HdfsMissingError:
            continue  # not there yet, or renamed or deleted meanwhile
        for entry in entries:
            if entry.folder:
                todo.append(f"{path}/{entry.name}")
            else:
                found[f"{path}/{entry.name}".removeprefix(root)] = entry.size_bytes
    return found


def parts_there(uri):
    return [path for path, size in files_below(uri).items() if WRITING_PREFIX in path and size == PART_BYTES]


class TestConformance(CheckpointStoreCases):
    @pytest.fixture
    def store(self, uri):
        return open_store(uri)

    def damage(self, store, saved, name):
        hdfs, path = open_webhdfs(f"{saved.location}/{name}")
        content = hdfs.read_whole(path)
        hdfs.create(path, lambda: bytes([content[0] ^ 1]) + content[1:])


class Saving(threading.Thread):
    """A save of a large file, under way."""

    def __init__(self, uri, source):
        super().__init__()
        self.saved = None
        self._uri, self._source = uri, source
        self.start()
        # Whatever is killed from here on is killed in the middle: the first parts of forty are there.
        wait_until(lambda: len(parts_there(uri)) >= 3 or not self.is_alive())
        assert self.is_alive(), "the save was too fast: nothing would be shown"

    def run(self):
        self.saved = store_of(self._uri).save("j", 1, {"f": self._source}, {"seed": 1})


@pytest.mark.parametrize("daemon", [NAMENODE, DATANODE])
def test_a_daemon_killed_in_the_middle_of_a_save_costs_time_only(breakable_cluster, uri, source, tmp_path, daemon):
    saving = Saving(uri, source)
    breakable_cluster.kill(daemon)
    assert saving.is_alive()
    breakable_cluster.start_daemon(daemon)
    saving.join()
    assert sorted(files_below(uri)) == ["/j/000000000001/f", "/j/000000000001/manifest.json"]
    store = store_of(uri)
    assert store.latest("j") == saving.saved
    store.fetch(saving.saved, tmp_path / "out")
    assert (tmp_path / "out" / "f").read_bytes() == source.read_bytes()


@pytest.mark.parametrize("daemon", [NAMENODE, DATANODE])
def test_a_daemon_killed_in_the_middle_of_a_fetch_costs_time_only(breakable_cluster, uri, tmp_path, daemon):
    source = tmp_path / "large"
    source.write_bytes(os.urandom(200 << 20))
    saved = open_store(uri).save("j", 1, {"f": source}, {})
    fetching = threading.Thread(target=lambda: store_of(uri).fetch(saved, tmp_path / "out"))
    fetching.start()
    partial = tmp_path / "out" / f".f.partial-{os.getpid()}"
    while not (partial.exists() and partial.stat().st_size > 0):
        assert fetching.is_alive()
    breakable_cluster.kill(daemon)
    caught = not (tmp_path / "out" / "f").exists()
    breakable_cluster.start_daemon(daemon)
    fetching.join()
    assert caught, "the fetch was too fast: nothing was shown"
    assert (tmp_path / "out" / "f").read_bytes() == source.read_bytes()


def test_a_writer_killed_in_the_middle_leaves_nothing_that_counts(uri, source):
    code = (
        "import sys; from pathlib import Path; sys.path.insert(0, sys.argv[3]); from test_hdfs_store import store_of;"
        "store_of(sys.argv[1]).save('j', 2, {'f': Path(sys.argv[2])}, {})"
    )
    first = store_of(uri).save("j", 1, {"f": source}, {})
    paths = os.pathsep.join((str(ROOT / "tests"), str(ROOT / "tests" / "hadoop")))
    environment = {**os.environ, "PYTHONPATH": paths}
    command = [sys.executable, "-c", code, uri, str(source), str(ROOT / "tests" / "hadoop")]
    with subprocess.Popen(command, env=environment, cwd=ROOT) as writer:
        try:
            wait_until(lambda: len(parts_there(uri)) >= 3 or writer.poll() is not None)
            assert writer.poll() is None
        finally:
            writer.send_signal(signal.SIGKILL)
    store = store_of(uri)
    assert store.latest("j") == first
    assert [each.iteration for each in store.checkpoints("j")] == [1]
    assert parts_there(uri)
    second = store.save("j", 2, {"f": source}, {})
    assert store_of(uri).latest("j") == second
    assert parts_there(uri), "a folder written to a moment ago may have a living writer"
    store_of(uri, leftover_age_s=0.0).save("j", 3, {"f": source}, {})
    assert not [path for path in files_below(uri) if WRITING_PREFIX in path]


def test_writers_of_one_iteration_in_several_processes_end_with_one_whole_checkpoint(uri, tmp_path):
    (tmp_path / "f").write_bytes(os.urandom(1000))
    code = (
        "import sys; from pathlib import Path; from am.checkpoints import open_store;"
        "print(open_store(sys.argv[1]).save('j', 1, {'f': Path(sys.argv[2])}, {'n': int(sys.argv[3])}).meta['n'])"
    )
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", code, uri, str(tmp_path / "f"), str(n)], cwd=ROOT, stdout=subprocess.PIPE
        )
        for n in range(4)
    ]
    output = {writer.communicate()[0] for writer in writers}
    assert [writer.returncode for writer in writers] == [0] * 4
    assert len(output) == 1, "they do not agree whose it is"
    assert sorted(files_below(uri)) == ["/j/000000000001/f", "/j/000000000001/manifest.json"]


def test_an_unreachable_name_node_is_reported_after_the_wait(breakable_cluster, uri):
    store = open_store(uri, wait_s=0.5)
    breakable_cluster.kill(NAMENODE)
    with pytest.raises(UnreachableStoreError, match="HDFS has been unreachable"):
        store.latest("j")


def test_a_denied_write_names_the_user(cluster, monkeypatch, tmp_path):
    monkeypatch.setenv("HADOOP_USER_NAME", "somebody")
    (tmp_path / "f").write_text("x")
    with pytest.raises(CheckpointError, match="Permission denied: user=somebody"):
        open_store(f"{cluster.fs_uri}/forbidden").save("j", 1, {"f": tmp_path / "f"}, {})


def test_renames_replace_in_one_step(cluster, uri):
    hdfs, root = open_webhdfs(uri, rule=RetryRule(deadline_s=10.0))
    hdfs.create(f"{root}/a", lambda: b"new")
    hdfs.create(f"{root}/b", lambda: b"old")
    hdfs.rename(f"{root}/a", f"{root}/b", overwrite=True)
    assert files_below(uri) == {"/b": 3}
    assert hdfs.read_whole(f"{root}/b") == b"new"


@pytest.mark.parametrize("daemon", [NAMENODE, DATANODE])
def test_a_journal_loses_nothing_to_a_daemon_that_dies(breakable_cluster, uri, daemon):
    journal = Journal(uri)
    journal.note("before", 1)
    wait_until(lambda: any(path.endswith("/00000000") for path in files_below(uri)))
    breakable_cluster.kill(daemon)
    for number in range(200):
        journal.note(f"away-{number}", number)
    breakable_cluster.start_daemon(daemon)
    journal.note("after", 2)
    journal.close()
    again = Journal(uri)
    again.close()
    assert again.content.notes == {"before": 1, **{f"away-{n}": n for n in range(200)}, "after": 2}


def test_the_journal_of_a_killed_master_is_a_prefix_of_its_notes(uri):
    code = (
        "import sys, itertools, time; from am.journal import Journal; journal = Journal(sys.argv[1]);"
        "[(journal.note(str(n), n), time.sleep(0.001)) for n in itertools.count()]"
    )
    for _ in range(3):
        with subprocess.Popen([sys.executable, "-c", code, uri], cwd=ROOT) as master:
            try:
                wait_until(lambda: len([path for path in files_below(uri) if not path.endswith("/base")]) >= 3)
            finally:
                master.send_signal(signal.SIGKILL)
        journal = Journal(uri)
        journal.close()
        notes = journal.content.notes
        assert notes == {str(n): n for n in range(len(notes))}
        assert len(notes) > 0


def test_checkpoints_move_between_a_folder_and_hdfs(uri, tmp_path, capsys):
    (tmp_path / "f").write_bytes(os.urandom(100_000))
    local = open_store(str(tmp_path / "local"))
    for iteration in (1, 2, 3):
        local.save("j", iteration, {"f": tmp_path / "f"}, {"seed": 1})
    assert main(["checkpoints", "copy", str(tmp_path / "local"), uri, "--last", "2", "--verify"]) == 0
    assert main(["checkpoints", "copy", uri, str(tmp_path / "back")]) == 0
    capsys.readouterr()
    assert main(["checkpoints", "list", uri, "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert [(each["iteration"], each["location"]) for each in shown] == [(n, f"{uri}/j/{n:012d}") for n in (2, 3)]
    assert open_store(str(tmp_path / "back")).latest("j").files == local.latest("j").files


def test_a_task_keeps_its_checkpoints_there_and_resumes_from_them(uri, tmp_path):
    def run(iterations):
        flags = ("--iterations", str(iterations), "--serial_iteration_s", "0.1", "--checkpoint_every", "10")
        environment = {**os.environ, "THEMIS_CHECKPOINT_URI": uri, "THEMIS_JOB_ID": "j", "THEMIS_TIME_SCALE": "100",
                       "THEMIS_JOB_DIR": str(tmp_path / uuid.uuid4().hex), "PYTHONPATH": str(ROOT)}  # fmt: skip
        command = [sys.executable, "-m", "tf_jobs.replay", *flags]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=True, cwd=tmp_path).stderr

    assert "restored" not in run(20).lower()
    assert open_store(uri).latest_iteration("j") == 20
    assert "restored" in run(30).lower()
    assert open_store(uri).latest_iteration("j") == 30
