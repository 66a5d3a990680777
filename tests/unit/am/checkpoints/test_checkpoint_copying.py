"""Checkpoints from one store to another."""

import pytest

from am.checkpoints import CheckpointError
from am.checkpoints.copying import Outcome, chosen, copy
from am.checkpoints.folder import FolderStore
from am.checkpoints.memory import MemoryStore
from themis.errors import InputError


@pytest.fixture
def source():
    return MemoryStore()


@pytest.fixture
def target(tmp_path):
    return FolderStore(tmp_path / "target")


@pytest.fixture
def save(tmp_path):
    def do(store, job_id, iteration, text="x"):
        (tmp_path / "f").write_text(text)
        return store.save(job_id, iteration, {"f": tmp_path / "f"}, {"at": iteration})

    return do


def outcomes(source, target, checkpoints, **options):
    return [each.outcome for each in copy(source, target, checkpoints, **options)]


def contents(store):
    return {(c.job_id, c.iteration): (c.files, c.meta) for job in store.jobs() for c in store.checkpoints(job)}


def test_second_copy_skips_all(source, target, save):
    for job_id, iteration in (("a", 1), ("a", 2), ("b", 7)):
        save(source, job_id, iteration, f"{job_id}{iteration}")
    found = chosen(source, "memory", None, None)
    assert outcomes(source, target, found) == [Outcome.COPIED] * 3
    assert contents(target) == contents(source)
    assert outcomes(source, target, found, verify=True) == [Outcome.THERE] * 3
    assert target.latest("a").meta == {"at": 2}


def test_interrupted_copy_continues(source, target, save):
    for iteration in range(1, 5):
        save(source, "a", iteration)
    found = chosen(source, "memory", None, None)
    running = copy(source, target, found)
    next(running), next(running)
    running.close()
    assert outcomes(source, target, found) == [Outcome.THERE] * 2 + [Outcome.COPIED] * 2


def test_job_and_newest_checkpoints_are_chosen(source, save):
    for job_id in ("a", "b"):
        for iteration in (1, 2, 3):
            save(source, job_id, iteration)
    assert [(c.job_id, c.iteration) for c in chosen(source, "memory", None, 1)] == [("a", 3), ("b", 3)]
    assert [(c.job_id, c.iteration) for c in chosen(source, "memory", "b", 2)] == [("b", 2), ("b", 3)]
    assert len(chosen(source, "memory", "a", 99)) == 3


def test_unknown_job_and_empty_source_raise(source, save):
    with pytest.raises(InputError, match="no job has checkpoints here: 'memory'"):
        chosen(source, "memory", None, None)
    save(source, "job-one", 1)
    with pytest.raises(InputError, match="did you mean 'job-one'"):
        chosen(source, "memory", "job-onne", None)


def test_broken_checkpoints_are_reported(source, target, save):
    save(source, "a", 1)
    save(source, "a", 2)
    source.corrupt("a", 1, "f", b"y")
    assert outcomes(source, target, chosen(source, "memory", None, None)) == [Outcome.BROKEN, Outcome.COPIED]
    assert [c.iteration for c in target.checkpoints("a")] == [2]


def test_vanished_checkpoints_are_reported(source, target, save):
    save(source, "a", 1)
    found = chosen(source, "memory", None, None)
    save(source, "a", 2)
    source.prune("a", 1)
    assert outcomes(source, target, found) == [Outcome.GONE]


@pytest.mark.parametrize("verify", [False, True])
def test_different_checkpoint_at_iteration_raises(source, target, save, verify):
    save(source, "a", 1, "mine")
    save(target, "a", 1, "theirs")
    with pytest.raises(CheckpointError, match="another checkpoint than memory://a/1 is there"):
        outcomes(source, target, chosen(source, "memory", None, None), verify=verify)
    assert (target.latest("a").files) != source.latest("a").files


def test_verify_replaces_damaged_copy(source, target, save, tmp_path):
    save(source, "a", 1, "good")
    found = chosen(source, "memory", None, None)
    outcomes(source, target, found)
    (tmp_path / "target" / "a" / f"{1:012d}" / "f").write_text("evil")
    assert outcomes(source, target, found) == [Outcome.THERE]
    assert outcomes(source, target, found, verify=True) == [Outcome.COPIED]
    assert target.is_whole(target.checkpoints("a")[0])


def test_verify_reads_copy_back(source, save):
    class Forgetful(MemoryStore):
        def save(self, job_id, iteration, files, meta):
            saved = super().save(job_id, iteration, files, meta)
            self.corrupt(job_id, iteration, "f", b"?")
            return saved

    save(source, "a", 1)
    found = chosen(source, "memory", None, None)
    with pytest.raises(CheckpointError, match="differs from what was written"):
        outcomes(source, Forgetful(), found, verify=True)
