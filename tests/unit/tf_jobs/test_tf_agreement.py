"""All tasks of a job start from the same state, or none does: what each has restored is compared."""

import json

import numpy as np
import pytest

from tf_jobs import workers
from tf_jobs.catalog import program
from tf_jobs.context import read_context
from tf_jobs.flags import parse
from tf_jobs.incarnation import Incarnation
from tf_jobs.learner import StepOutcome
from tf_jobs.signals import StopRequest
from tf_jobs.watchdog import Watchdog
from themis.errors import ThemisError

DIGEST = 7


class Learner:
    """Counts; its state is a constant."""

    def __init__(self):
        self.steps = 0

    def digest(self):
        return DIGEST

    def step(self, _iteration, *, stop):
        self.steps += 1
        return StepOutcome(loss=1.0, stop=stop)

    def validate(self):
        return None


def train(folder, monkeypatch, peer):
    """Train as the second of two tasks, whose chief sends `peer`. Returns the steps done."""

    def exchanged(_tf, _workers, mine):
        if mine.ndim == 1:
            return mine
        everyone = np.array(mine)
        assert not mine[0].any(), "a task fills in its own row alone"
        everyone[0] = peer
        return everyone

    monkeypatch.setattr(workers, "exchange", exchanged)
    environment = {
        "THEMIS_TASKS": "2",
        "THEMIS_TASK_INDEX": "1",
        "THEMIS_INCARNATION": "1",
        "THEMIS_CHECKPOINT_URI": str(folder / "ck"),
        "THEMIS_JOB_DIR": str(folder),
        "TF_CONFIG": json.dumps({"cluster": {"worker": ["h:1", "h:2"]}, "task": {"index": 1}}),
    }
    learner = Learner()
    incarnation = Incarnation(
        context=read_context("j", environment),
        values=parse(program("digits_dense"), ["--iterations", "5"]),
        meta={},
        stop=StopRequest(),
        watchdog=Watchdog(60.0, "a test"),
    )
    incarnation.train(None, learner, workers.Alone())
    return learner.steps


def test_tasks_in_the_same_state_train(tmp_path, monkeypatch):
    assert train(tmp_path, monkeypatch, (0, 5, DIGEST)) == 5


@pytest.mark.parametrize("peer", [(4, 5, DIGEST), (0, 6, DIGEST), (0, 5, DIGEST + 1)])
def test_tasks_that_restored_otherwise_do_not(tmp_path, monkeypatch, peer):
    with pytest.raises(ThemisError, match="do not start from the same state"):
        train(tmp_path, monkeypatch, peer)
