"""The chief's records of a run: checkpoints, log lines and history, kept consistent."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from am.checkpoints.store import Checkpoint, CheckpointStore, Meta
from am.checkpoints.uri import open_store
from tf_jobs.context import TaskContext
from tf_jobs.history import History
from tf_jobs.logs import TrainingLog
from themis.errors import InputError

SaveEvent = Literal["checkpoint", "stop", "end"]


class Recorder:
    """Writes checkpoints, log lines and history for one incarnation of a job.

    Args:
        context: The chief's context.
        keep_checkpoints: How many of the newest checkpoints to keep.
        log: The writer of log lines.
        store: The checkpoint store; by default the one of the context.
    """

    def __init__(
        self, context: TaskContext, keep_checkpoints: int, log: TrainingLog, store: CheckpointStore | None = None
    ) -> None:
        self.log = log
        self._context = context
        self._keep = keep_checkpoints
        self._store = store or open_store(context.checkpoint_uri)
        self._history = History(context.job_dir, context.incarnation)
        self._started_at = 0

    def started(self, iteration: int, restore_s: float | None) -> None:
        """Record that the run begins after `iteration`. `restore_s` is the time to restore, None for a fresh start."""
        self._started_at = iteration
        if restore_s is not None:
            self.log.restored(iteration, restore_s)
        self._history.append("start", from_iteration=iteration, tasks=self._context.tasks, gpus=self._context.gpus)

    def save(self, iteration: int, event: SaveEvent, files: Mapping[str, Path], meta: Meta) -> None:
        """Save a checkpoint at `iteration`, and log it afterwards: a checkpoint in the log is always complete."""
        begun_s = time.monotonic()
        saved = self._store.save(self._context.job_id, iteration, files, meta)
        self._store.prune(self._context.job_id, self._keep)
        self.log.checkpoint(iteration, saved.location, time.monotonic() - begun_s, saved.size_bytes)
        self.note(iteration, event)

    def note(self, iteration: int, event: SaveEvent) -> None:
        """Record in the history that the state at `iteration` is saved."""
        self._history.append(event, iteration=iteration, iterations_run=iteration - self._started_at)

    def validated(self, iteration: int, loss: float, accuracy: float | None) -> None:
        """Log the held-out loss, and the accuracy if known. This is the last line of a finished run."""
        self.log.validation(iteration, loss, accuracy)
        # JSON has no NaN. So a diverged loss is in the log, but not in the history.
        self._history.append(
            "validation", iteration=iteration, loss=loss if math.isfinite(loss) else None, accuracy=accuracy
        )


def restore(store: CheckpointStore, job_id: str, into: Path, expected: Meta, *, after: int = 0) -> Checkpoint | None:
    """Fetch the newest complete checkpoint into `into`, reading it once. Returns None if there is none.

    Args:
        store: The checkpoint store.
        job_id: The job.
        into: A folder of this task alone.
        expected: The values that the checkpoint's meta must have.
        after: Iterations done before, under the same name. A checkpoint at or below this iteration is not ours.

    Raises:
        InputError: The checkpoint belongs to another program, model or data order.
    """
    found = store.fetch_latest(job_id, into)
    if found is None or 0 < found.iteration <= after:
        return None
    for name, wanted in expected.items():
        if found.meta.get(name) != wanted:
            theirs = found.meta.get(name)
            raise InputError(
                f"the checkpoint at {found.location} has {name} = {theirs!r}, this run has",
                value=wanted,
                remedy="use another job id or --checkpoint_uri, or the flags of the first run",
            )
    return found


def stderr_log() -> TrainingLog:
    """Return the log of task programs."""
    return TrainingLog(sys.stderr)
