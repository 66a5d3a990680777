"""The folder store under kills, corruption, and readers at the wrong moment."""

import errno
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from am.checkpoints import CheckpointError, MissingCheckpointError
from am.checkpoints.folder import FolderStore
from am.checkpoints.store import FullStoreError

WRITER = """
import sys
from pathlib import Path
from am.checkpoints.folder import FolderStore
root, source, first = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
store = FolderStore(root)
print("up", flush=True)
for iteration in range(first, first + 100000):
    store.save("j", iteration, {"a": source, "b": source}, {"i": iteration})
    store.prune("j", 2)
"""


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "source"
    path.write_bytes(os.urandom(300_000))
    return path


def save(store: FolderStore, iteration: int, source: Path):
    return store.save("j", iteration, {"a": source, "b": source}, {})


def test_a_killed_writer_leaves_old_or_new(tmp_path, source):
    root = tmp_path / "root"
    store = FolderStore(root)
    store.save("j", 1, {"a": source, "b": source}, {"i": 1})
    caught_in_the_middle = 0
    newest = 1
    for attempt in range(10):
        command = [sys.executable, "-c", WRITER, str(root), str(source), str(newest + 1)]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as writer:
            writer.stdout.readline()
            time.sleep(0.01 + 0.0037 * attempt)
            writer.send_signal(signal.SIGKILL)
        caught_in_the_middle += any(p.name.startswith((".writing-", ".trash-")) for p in (root / "j").iterdir())
        found = store.latest("j")
        assert found is not None
        assert found.iteration >= newest, "a whole checkpoint was lost"
        assert found.iteration == store.latest_iteration("j") == found.meta["i"]
        for folder in (root / "j").glob("[0-9]*"):
            assert {p.name for p in folder.iterdir()} == {"a", "b", "manifest.json"}, "half a checkpoint is visible"
        newest = found.iteration
    assert caught_in_the_middle > 0, "no kill fell into a save: the test showed nothing"
    save(store, newest + 1, source)
    assert not list((root / "j").glob(".writing-*")) + list((root / "j").glob(".trash-*")), "leftovers were not swept"


def test_readers_during_writes_find_complete_checkpoint(tmp_path, source):
    root = tmp_path / "root"
    store = FolderStore(root)
    save(store, 1, source)
    failures: list[BaseException] = []
    fetched = 0
    ended = threading.Event()

    def read() -> None:
        nonlocal fetched
        reader = FolderStore(root)
        while not ended.is_set():
            try:
                found = reader.latest("j")
                assert found is not None
                try:
                    reader.fetch(found, tmp_path / "out")
                    assert (tmp_path / "out" / "a").read_bytes() == source.read_bytes()
                    fetched += 1
                except MissingCheckpointError:
                    pass  # pruned between the two calls
            except BaseException as error:
                failures.append(error)
                return

    thread = threading.Thread(target=read)
    thread.start()
    for iteration in range(2, 60):
        save(store, iteration, source)
        store.prune("j", 1)
    ended.set()
    thread.join()
    assert not failures
    assert fetched > 0


@pytest.mark.parametrize("length", [0, 1, 50, -2])
def test_a_truncated_manifest_is_passed_over(tmp_path, source, length):
    store = FolderStore(tmp_path / "root")
    save(store, 1, source)
    manifest = Path(save(store, 2, source).location) / "manifest.json"
    manifest.write_bytes(manifest.read_bytes()[:length])
    assert store.latest("j").iteration == 1
    assert store.latest_iteration("j") == 1


@pytest.mark.parametrize("content", ["[]", "{}", '{"format": 1, "files": [1]}', '{"format": 9, "files": []}', "null"])
def test_a_manifest_of_another_shape_is_skipped(tmp_path, source, content):
    store = FolderStore(tmp_path / "root")
    (Path(save(store, 2, source).location) / "manifest.json").write_text(content)
    assert store.latest("j") is None
    assert store.latest_iteration("j") is None


def test_a_missing_or_short_file_is_passed_over_without_reading_contents(tmp_path, source):
    store = FolderStore(tmp_path / "root")
    save(store, 1, source)
    os.truncate(Path(save(store, 2, source).location) / "a", 10)
    (Path(save(store, 3, source).location) / "b").unlink()
    assert store.latest_iteration("j") == 1
    assert store.latest("j").iteration == 1


def test_a_checkpoint_under_another_iterations_name_is_skipped(tmp_path, source):
    store = FolderStore(tmp_path / "root")
    folder = Path(save(store, 1, source).location)
    folder.rename(folder.with_name(f"{2:012d}"))
    assert store.latest("j") is None


def test_broken_checkpoints_do_not_count_as_kept(tmp_path, source):
    store = FolderStore(tmp_path / "root")
    for iteration in (1, 2, 3):
        saved = save(store, iteration, source)
    (Path(saved.location) / "manifest.json").unlink()
    store.prune("j", 2)
    assert store.latest("j").iteration == 2
    store.fetch(save(store, 1, source), tmp_path / "out")


def test_layout_is_as_documented(tmp_path, source):
    save(FolderStore(tmp_path / "root"), 120, source)
    assert (tmp_path / "root" / "j" / "000000000120" / "manifest.json").is_file()


def test_wait_for_lock_times_out(tmp_path, source):
    root = tmp_path / "root"
    save(FolderStore(root), 1, source)
    holder = FolderStore(root)
    with holder._writing(root / "j"), pytest.raises(CheckpointError, match="another process"):
        save(FolderStore(root, lock_timeout_s=0.05), 2, source)
    save(FolderStore(root, lock_timeout_s=0.05), 2, source)


def test_unwritable_root_raises_checkpoint_error(tmp_path, source):
    (tmp_path / "root").write_text("a file")
    with pytest.raises(CheckpointError, match="cannot save the checkpoint"):
        save(FolderStore(tmp_path / "root"), 1, source)


@pytest.mark.parametrize(("number", "kind"), [("ENOSPC", True), ("EDQUOT", True), ("EIO", False)])
def test_full_disk_or_quota_is_an_error_of_its_own(tmp_path, source, monkeypatch, number, kind):
    def fail(descriptor):
        raise OSError(getattr(errno, number), "no")

    monkeypatch.setattr("am.checkpoints.folder.os.fsync", fail)
    with pytest.raises(CheckpointError, match="cannot save the checkpoint") as caught:
        save(FolderStore(tmp_path / "root"), 1, source)
    assert isinstance(caught.value, FullStoreError) is kind


def test_a_missing_source_leaves_nothing_behind(tmp_path, source):
    store = FolderStore(tmp_path / "root")
    with pytest.raises(CheckpointError):
        store.save("j", 1, {"a": source, "b": tmp_path / "nowhere"}, {})
    assert [p.name for p in (tmp_path / "root" / "j").iterdir()] == [".lock"]
