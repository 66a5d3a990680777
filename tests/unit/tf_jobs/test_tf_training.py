"""The training loop and the recorder, with a learner that only counts."""

import io
import json
from pathlib import Path

import pytest

from am.checkpoints import open_store
from am.checkpoints.folder import FolderStore
from am.checkpoints.store import FullStoreError
from tf_jobs.catalog import program
from tf_jobs.context import read_context
from tf_jobs.exit_codes import EXIT_CHECKPOINTED, EXIT_DONE
from tf_jobs.flags import parse
from tf_jobs.learner import StepOutcome
from tf_jobs.logs import TrainingLog
from tf_jobs.recorder import Recorder, restore
from tf_jobs.saver import BackgroundSaver, Snapshot
from tf_jobs.training import TrainingRun
from tf_jobs.workers import PeerLostError
from themis.errors import InputError


class Counter:
    """A learner whose state is the list of iterations it did. Before each it has its former states saved."""

    settle = staticmethod(lambda: None)

    def __init__(self, *, peer_stops_at: int = 0, peer_dies_at: int = 0) -> None:
        self.done: list[int] = []
        self._peer_stops_at = peer_stops_at
        self._peer_dies_at = peer_dies_at

    def step(self, iteration: int, *, stop: bool) -> StepOutcome:
        self.settle()
        if iteration == self._peer_dies_at:
            raise PeerLostError("gone")
        self.done.append(iteration)
        return StepOutcome(loss=1.0 / iteration, stop=stop or iteration == self._peer_stops_at)

    def validate(self) -> tuple[float, float]:
        return 0.25, 0.5

    def snapshot(self) -> Snapshot:
        done = list(self.done)

        def write(folder: Path) -> dict[str, Path]:
            (folder / "state").write_text(json.dumps(done))
            return {"state": folder / "state"}

        return write


class Job:
    """Runs incarnations of one job, one task each."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.output = io.StringIO()
        self.incarnation = 0
        self.store = open_store(str(folder / "checkpoints"))

    def run(self, learner: Counter, iterations: int, *, stop_after: int = 10**9, start: int = 0) -> int:
        self.incarnation += 1
        values = parse(program("digits_dense"), ["--iterations", str(iterations), "--checkpoint_every", "4"])
        environment = {
            "THEMIS_JOB_ID": "j",
            "THEMIS_JOB_DIR": str(self.folder),
            "THEMIS_CHECKPOINT_URI": str(self.folder / "checkpoints"),
            "THEMIS_INCARNATION": str(self.incarnation),
        }
        recorder = Recorder(read_context("p", environment), 2, TrainingLog(self.output))
        recorder.started(start, None if start == 0 else 0.1)
        saver = BackgroundSaver(recorder, self.folder, {"seed": 0})
        learner.settle = saver.settle
        run = TrainingRun(learner, values, recorder, saver)
        return run.go(start, lambda: len(learner.done) >= stop_after, lambda ends: None)

    def events(self) -> list[tuple]:
        lines = [json.loads(line) for line in (self.folder / "history.jsonl").read_text().splitlines()]
        return [(e["incarnation"], e["event"], e.get("iteration", e.get("from_iteration"))) for e in lines]


@pytest.fixture
def job(tmp_path):
    return Job(tmp_path)


def test_a_run_to_the_end(job):
    learner = Counter()
    assert job.run(learner, 10) == EXIT_DONE
    assert learner.done == list(range(1, 11))
    assert job.events() == [
        (1, "start", 0),
        (1, "checkpoint", 4),
        (1, "checkpoint", 8),
        (1, "end", 10),
        (1, "validation", 10),
    ]
    assert job.store.latest("j").iteration == 10
    assert job.output.getvalue().splitlines()[-1].startswith("INFO:tensorflow:Validation (step 10)")


def test_a_stop_saves_the_last_whole_iteration(job):
    learner = Counter()
    assert job.run(learner, 10, stop_after=5) == EXIT_CHECKPOINTED
    assert learner.done == [1, 2, 3, 4, 5, 6], "a step that has begun is finished"
    assert job.events()[-1] == (1, "stop", 6)
    assert job.store.latest("j").iteration == 6
    assert "Validation" not in job.output.getvalue()


def test_a_stop_of_a_peer_stops_this_task_at_the_same_iteration(job):
    assert job.run(Counter(peer_stops_at=3), 10) == EXIT_CHECKPOINTED
    assert job.store.latest("j").iteration == 3


def test_stop_and_resume_repeat_nothing_and_lose_nothing(job):
    first, second = Counter(), Counter()
    job.run(first, 10, stop_after=5)
    job.run(second, 10, start=job.store.latest("j").iteration)
    assert first.done + second.done == list(range(1, 11))
    assert (2, "start", 6) in job.events()


def test_a_stop_at_the_very_end_is_the_end(job):
    assert job.run(Counter(peer_stops_at=10), 10) == EXIT_DONE


def test_a_dead_peer_is_a_failure_unless_a_stop_was_asked_for(job):
    with pytest.raises(PeerLostError):
        job.run(Counter(peer_dies_at=6), 10)
    assert job.store.latest("j").iteration == 4
    assert job.run(Counter(peer_dies_at=6), 10, stop_after=5) == EXIT_CHECKPOINTED
    assert job.store.latest("j").iteration == 5


@pytest.mark.parametrize("start", [0, 4])
def test_a_stop_before_any_work_saves_nothing(job, start):
    """A peer was stopped and left before the first iteration, as when a lease ends at once."""
    if start:
        job.run(Counter(), start)
    before = job.store.latest("j")
    assert job.run(Counter(peer_dies_at=start + 1), 10, stop_after=0, start=start) == EXIT_CHECKPOINTED
    assert job.store.latest("j") == before
    assert job.events()[-1] == (job.incarnation, "stop", start)
    saved = f"INFO:themis:checkpoint iteration = {start},"
    assert job.output.getvalue().count(saved) == (1 if start else 0)


def test_nothing_to_do_saves_nothing_but_validates(job):
    job.run(Counter(), 8)
    before = job.store.latest("j")
    assert job.run(Counter(), 8, start=8) == EXIT_DONE
    assert job.store.latest("j") == before
    assert job.events()[-2:] == [(2, "end", 8), (2, "validation", 8)]


def test_old_checkpoints_are_dropped(job, tmp_path):
    job.run(Counter(), 20)
    assert sorted(p.name for p in (tmp_path / "checkpoints" / "j").glob("0*")) == ["000000000016", "000000000020"]


@pytest.mark.parametrize(("peer_stops_at", "last"), [(0, 10), (3, 3)])
def test_every_task_knows_after_which_iteration_the_chief_makes_them_wait(peer_stops_at, last):
    values = parse(program("digits_dense"), ["--iterations", "10", "--checkpoint_every", "4"])
    run = TrainingRun(Counter(peer_stops_at=peer_stops_at), values, None, None)
    beats = []
    run.go(0, lambda: False, beats.append)
    assert [iteration for iteration, beat in enumerate(beats, 1) if beat] == [last]


def test_only_the_chief_logs_and_saves(tmp_path):
    values = parse(program("digits_dense"), ["--iterations", "6"])
    learner = Counter()
    assert TrainingRun(learner, values, None, None).go(0, lambda: False, lambda ends: None) == EXIT_DONE
    assert learner.done == [1, 2, 3, 4, 5, 6]
    assert list(tmp_path.iterdir()) == []


def test_a_checkpoint_of_another_run_is_refused(job, tmp_path):
    job.run(Counter(), 4)
    assert restore(job.store, "j", tmp_path / "in", {"seed": 0}).iteration == 4
    with pytest.raises(InputError, match="seed = 0, this run has: 1"):
        restore(job.store, "j", tmp_path / "in", {"seed": 1})
    assert restore(job.store, "unknown", tmp_path / "in", {"seed": 1}) is None


@pytest.fixture
def full_store(monkeypatch):
    """Checkpoints find a full store as often as `left` says."""
    save = FolderStore.save

    class Full:
        left = 0

    def refuse(self, job_id, iteration, files, meta):
        if Full.left > 0:
            Full.left -= 1
            raise FullStoreError("the store is full", value=iteration)
        return save(self, job_id, iteration, files, meta)

    monkeypatch.setattr(FolderStore, "save", refuse)
    monkeypatch.setattr("tf_jobs.training.FULL_STORE_RETRY_S", 0.01)
    return Full


def test_a_full_store_at_the_end_is_waited_for(job, full_store):
    full_store.left = 3
    learner = Counter()
    # The first checkpoint fails, and no other is due before the end. There two more tries fail.
    assert job.run(learner, 6) == EXIT_DONE
    assert learner.done == list(range(1, 7))
    assert job.events() == [(1, "start", 0), (1, "end", 6), (1, "validation", 6)]
    assert job.output.getvalue().count("INFO:themis:unsaved iteration = 6") == 2


def test_a_stop_while_the_store_is_full_ends_the_wait(job, full_store):
    full_store.left = 10**9
    assert job.run(Counter(), 3, stop_after=3) == EXIT_CHECKPOINTED
    assert job.events() == [(1, "start", 0)]
