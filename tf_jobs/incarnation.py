"""One incarnation of a job in one of its tasks: restore, agree with the peers, train, save, leave."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, Protocol

from am.checkpoints.store import Meta
from am.checkpoints.uri import open_store
from tf_jobs.context import TaskContext
from tf_jobs.flags import Values
from tf_jobs.recorder import Recorder, restore, stderr_log
from tf_jobs.saver import BackgroundSaver
from tf_jobs.signals import StopRequest
from tf_jobs.training import Trainee, TrainingRun
from tf_jobs.watchdog import STARTUP_LIMIT_S, Watchdog
from tf_jobs.workers import PeerLostError, Workers, agree, meet
from themis.values import Value

STEP_LIMIT_S = 20.0
SAVE_LIMIT_S = 180.0
"""The limit while the chief saves for the last time: the store may be slow, and no peer has died."""
LINGER_S = 0.3


class Resumable(Trainee, Protocol):
    """A learner that can be trained and restored from a checkpoint."""

    def read_state(self, folder: Path) -> None:
        """Load the state of a checkpoint from the files in `folder`."""
        ...

    def digest(self) -> int:
        """Return a checksum of the state, equal on tasks with equal state."""
        ...


class Incarnation(Value, frozen=True, kw_only=True):
    """A start of a job.

    Attributes:
        context: This task's position in the job.
        values: The run's flags: iterations, checkpoint_every, keep_checkpoints, log_every.
        meta: Values that a checkpoint and the run that resumes it must share.
        stop: Whether this task has been asked to stop.
        watchdog: Ends the task if its peers are silent; started if it has peers.
        before: Iterations of the job done before, for example by an earlier fit of the script.
    """

    context: TaskContext
    values: Values
    meta: Meta
    stop: StopRequest
    watchdog: Watchdog
    before: int = 0

    def train(self, tf: Any, learner: Resumable, workers: Workers) -> int:
        """Train to the end or to a stop. Returns the exit code.

        Raises:
            PeerLostError: Another task has died.
            ThemisError: The tasks start from different states, or the state cannot be read or saved.
        """
        scratch = scratch_of(self.context)
        start, restore_s = self._restore(learner, scratch)
        facts = (float(start), float(self.values.whole("iterations")), float(learner.digest()))
        agree(tf, workers, self.context, facts)
        self.stop.training_begins()
        recorder = self._recorder(start, restore_s)
        saver = BackgroundSaver(recorder, scratch, self.meta) if recorder else None
        run = TrainingRun(learner, self.values, recorder, saver)
        self.watchdog.beat(STARTUP_LIMIT_S, "waiting for the first iteration")
        code = run.go(start, self.stop.requested, self._beat)
        self._part(tf, workers)
        return code

    def _restore(self, learner: Resumable, scratch: Path) -> tuple[int, float | None]:
        """Restore the newest checkpoint.

        Returns the iterations done and the seconds that restoring took, or (before, None) for a fresh start.
        """
        begun_s = time.monotonic()
        store = open_store(self.context.checkpoint_uri)
        found = restore(store, self.context.job_id, scratch, self.meta, after=self.before)
        if found is None:
            return self.before, None
        learner.read_state(scratch)
        return found.iteration, time.monotonic() - begun_s

    def _recorder(self, start: int, restore_s: float | None) -> Recorder | None:
        """Make the recorder, on the chief only, and record the start of this incarnation."""
        if not self.context.chief:
            return None
        recorder = Recorder(self.context, self.values.whole("keep_checkpoints"), stderr_log())
        recorder.started(start, restore_s)
        return recorder

    def _beat(self, ends: bool) -> None:
        self.watchdog.beat(SAVE_LIMIT_S if ends else STEP_LIMIT_S, "waiting for the next iteration")

    def _part(self, tf: Any, workers: Workers) -> None:
        """Wait until the chief has saved: its peers' collectives end with its process."""
        if self.context.tasks == 1:
            return
        self.watchdog.beat(SAVE_LIMIT_S, "parting")
        try:
            meet(tf, workers)
        except PeerLostError:
            return  # All that had to be saved is saved.
        if self.context.chief:
            time.sleep(LINGER_S)


def scratch_of(context: TaskContext) -> Path:
    """Make a folder for this task below the job's folder: one in /tmp would outlive a kill."""
    scratch = context.job_dir / "scratch" / str(context.task_index)
    scratch.mkdir(parents=True, exist_ok=True)
    return scratch
