"""Checkpoints in the background: what training waits for, what is kept, and what a crash or a failure leaves."""

import errno
import io
import json
import re
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from log_lines import parse_line

from am.checkpoints import open_store
from am.checkpoints.folder import FolderStore
from am.checkpoints.store import CheckpointError, FullStoreError
from am.profiler.records import CheckpointFailed, CheckpointSaved
from tf_jobs.context import read_context
from tf_jobs.logs import TrainingLog
from tf_jobs.recorder import Recorder
from tf_jobs.saver import BackgroundSaver

STALLED = re.compile(r"INFO:themis:copied iteration = (\d+), stalled = (\S+)")
SLOW_S = 0.5


class SlowStore(FolderStore):
    """Takes SLOW_S seconds to save once it is let, and remembers whether two saves were ever under way at once."""

    def __init__(self, root):
        super().__init__(root)
        self.gate = threading.Event()
        self.at_once = threading.Semaphore(1)
        self.twice = False
        self.begun = []

    def save(self, job_id, iteration, files, meta):
        if not self.at_once.acquire(blocking=False):
            self.twice = True
        self.begun.append(iteration)
        assert self.gate.wait(60)
        time.sleep(SLOW_S)
        saved = super().save(job_id, iteration, files, meta)
        self.at_once.release()
        return saved


class BrokenStore(FolderStore):
    def save(self, job_id, iteration, files, meta):
        raise CheckpointError("the store is broken", value=iteration)


class FullStore(FolderStore):
    """Has no room while `full` is set."""

    full = True
    tries = 0

    def save(self, job_id, iteration, files, meta):
        self.tries += 1
        if self.full:
            raise FullStoreError("the store is full", value=iteration)
        return super().save(job_id, iteration, files, meta)


class GatedStore(SlowStore):
    """Saves when it is let."""

    def save(self, job_id, iteration, files, meta):
        self.begun.append(iteration)
        assert self.gate.wait(60)
        return FolderStore.save(self, job_id, iteration, files, meta)


class Job:
    """A job of one task whose state is an array."""

    def __init__(self, folder, store):
        self.folder, self.store, self.output = folder, store, io.StringIO()
        environment = {"THEMIS_JOB_ID": "j", "THEMIS_JOB_DIR": str(folder)}
        self.recorder = Recorder(read_context("p", environment), 10, TrainingLog(self.output), store)
        self.saver = BackgroundSaver(self.recorder, folder, {"seed": 0})
        self.state = np.zeros(500_000)

    def snapshot(self):
        copied = self.state.copy()

        def write(folder):
            np.save(folder / "state.npy", copied)
            return {"state.npy": folder / "state.npy"}

        return write

    def history(self):
        lines = (self.folder / "history.jsonl").read_text().splitlines()
        return [(event["event"], event["iteration"]) for event in map(json.loads, lines)]

    def saved(self, tmp_path):
        """Iteration of the newest checkpoint, and the state in it."""
        latest = self.store.latest("j")
        self.store.fetch(latest, tmp_path / "in")
        return latest.iteration, np.load(tmp_path / "in" / "state.npy")


@pytest.fixture
def job(tmp_path):
    def make(kind=FolderStore, name="job"):
        (tmp_path / name).mkdir(exist_ok=True)
        return Job(tmp_path / name, kind(tmp_path / f"{name}-ck"))

    (tmp_path / "job").mkdir()
    return make


def test_training_stalls_less_than_a_tenth_of_the_write_time(job, tmp_path):
    # On a busy machine a copy may take long too: one of a few must be fast.
    assert any(share_that_training_stalls(job, tmp_path, f"job-{number}") < 0.1 for number in range(3))


def share_that_training_stalls(job, tmp_path, name):
    made = job(SlowStore, name)
    for iteration in range(1, 31):
        if iteration % 10 == 0:
            made.saver.offer(iteration, made.snapshot)
            until(lambda: made.store.begun == [10])
        made.state += 1.0
    assert "checkpoint iteration" not in made.output.getvalue(), "training has gone on while the first is written"
    made.store.gate.set()
    made.saver.settle()
    printed = made.output.getvalue()
    stalls = {int(iteration): float(seconds) for iteration, seconds in STALLED.findall(printed)}
    records = [parse_line(line) for line in printed.splitlines()]
    writes = {record.iteration: record.seconds for record in records if isinstance(record, CheckpointSaved)}
    assert list(stalls) == [10, 20, 30]
    assert list(writes) == [10, 30]
    assert min(writes.values()) >= SLOW_S
    assert not made.store.twice
    iteration, state = made.saved(tmp_path / name)
    assert (iteration, state[0]) == (30, 29.0), "the state as it was when it was offered"
    return sum(stalls.values()) / sum(writes.values())


def test_the_newest_of_those_that_wait_wins(job):
    made = job(GatedStore)
    made.saver.offer(1, made.snapshot)
    until(lambda: made.store.begun == [1])
    for iteration in (2, 3, 4):
        made.saver.offer(iteration, made.snapshot)
    made.store.gate.set()
    made.saver.settle()
    assert made.store.begun == [1, 4]
    assert made.history() == [("checkpoint", 1), ("checkpoint", 4)]


def test_a_stop_waits_for_the_write_and_drops_older_snapshots(job):
    made = job(GatedStore)
    made.saver.offer(1, made.snapshot)
    until(lambda: made.store.begun == [1])
    made.saver.offer(2, made.snapshot)
    threading.Timer(0.2, made.store.gate.set).start()
    made.saver.save(3, "stop", made.snapshot)
    assert made.history() == [("checkpoint", 1), ("stop", 3)]
    assert made.store.latest_iteration("j") == 3


def test_a_checkpoint_is_logged_only_once_it_is_whole(job):
    made = job(GatedStore)
    made.saver.offer(1, made.snapshot)
    until(lambda: made.store.begun == [1])
    assert "checkpoint iteration" not in made.output.getvalue()
    assert not (made.folder / "history.jsonl").exists()
    made.store.gate.set()
    made.saver.settle()
    assert "INFO:themis:checkpoint iteration = 1," in made.output.getvalue()


def test_settling_has_a_limit(job):
    made = job(GatedStore)
    made.saver.offer(1, made.snapshot)
    begun_s = time.monotonic()
    made.saver.settle(0.1)
    assert 0.1 <= time.monotonic() - begun_s < 60.0
    made.store.gate.set()
    made.saver.settle()


def test_a_failed_write_raises_at_the_next_step_and_at_a_stop(job):
    made = job(BrokenStore)
    made.saver.check()
    made.saver.offer(1, made.snapshot)
    made.saver.settle()
    with pytest.raises(CheckpointError, match="the store is broken: 1"):
        made.saver.check()
    with pytest.raises(CheckpointError, match="the store is broken: 1"):
        made.saver.save(2, "stop", made.snapshot)
    assert not (made.folder / "history.jsonl").exists()


def test_training_goes_on_over_a_full_store_and_tries_less_and_less_often(job, tmp_path, monkeypatch):
    clock = [0.0]
    monkeypatch.setattr("tf_jobs.recorder.time.monotonic", lambda: clock[0])
    made = job(FullStore)
    for iteration in range(100):
        clock[0] = float(iteration)
        made.saver.offer(iteration, made.snapshot)
        made.saver.settle()
        made.saver.check()
    records = [parse_line(line) for line in made.output.getvalue().splitlines()]
    failed = [record for record in records if isinstance(record, CheckpointFailed)]
    # After 10, 20 and 40 s.
    assert [record.iteration for record in failed] == [0, 10, 30, 70]
    assert failed[0].reason == "the store is full: 0"
    made.store.full = False
    clock[0] = 200.0
    made.saver.offer(200, made.snapshot)
    made.saver.settle()
    assert made.saved(tmp_path)[0] == 200
    made.store.full, clock[0] = True, 201.0
    made.saver.offer(201, made.snapshot)
    made.saver.settle()
    clock[0] = 212.0
    assert not made.recorder.backs_off, "a saved checkpoint resets the pauses"


def test_stop_over_a_full_store_says_that_it_is_not_saved(job):
    made = job(FullStore)
    assert made.saver.save(3, "stop", made.snapshot) is False
    assert not (made.folder / "history.jsonl").exists()
    made.store.full = False
    assert made.saver.save(4, "stop", made.snapshot) is True


def test_full_disk_under_the_files_of_the_state_is_a_full_store(job):
    made = job()

    def write(folder):
        raise OSError(errno.ENOSPC, "No space left on device")

    assert made.saver.save(3, "stop", lambda: write) is False
    assert "unsaved iteration = 3, reason = [Errno 28] No space left on device" in made.output.getvalue()

    def denied(folder):
        raise OSError(errno.EACCES, "Permission denied")

    with pytest.raises(OSError, match="denied"):
        made.saver.save(4, "stop", lambda: denied)


def test_log_on_a_full_disk_loses_lines_and_nothing_else():
    class Full(io.StringIO):
        def flush(self):
            raise OSError(errno.ENOSPC, "No space left on device")

    TrainingLog(Full()).loss(1, 0.5, 0.0)


CRASH = """
    import os, sys
    from pathlib import Path
    sys.path[:0] = {folders!r}
    from test_tf_saver import FolderStore, Job, until

    class DyingStore(FolderStore):
        def save(self, job_id, iteration, files, meta):
            if iteration == 2:
                (Path({root!r}) / "j" / ".writing-2").mkdir()
                os._exit(9)
            return super().save(job_id, iteration, files, meta)

    job = Job(Path({folder!r}), DyingStore(Path({root!r})))
    job.saver.offer(1, job.snapshot)
    job.saver.settle()
    job.saver.offer(2, job.snapshot)
    job.saver.settle()
"""


def test_a_crash_in_the_middle_leaves_the_one_before_whole(job, tmp_path):
    folder, root = tmp_path / "job", tmp_path / "ck"
    here = Path(__file__)
    folders = [str(here.parent), str(here.parents[2])]
    script = textwrap.dedent(CRASH).format(folders=folders, folder=str(folder), root=str(root))
    assert subprocess.run([sys.executable, "-c", script], check=False, timeout=60).returncode == 9
    assert open_store(str(root)).latest("j").iteration == 1
    assert job().history() == [("checkpoint", 1)]


def until(condition):
    deadline_s = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline_s
        time.sleep(0.005)
