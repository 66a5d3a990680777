"""The chief's side of a run: checkpoints, log lines and history kept in step with one another."""

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
    """Saves, logs and notes for one incarnation of a job.

    Args:
        context: The chief's context.
        keep_checkpoints: Newest checkpoints to keep.
        log: Where log lines go.
        store: Where checkpoints go; by default where the context says.
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
        """The run begins after `iteration`; `restore_s` is how long restoring took, None for a fresh start."""
        self._started_at = iteration
        if restore_s is not None:
            self.log.restored(iteration, restore_s)
        self._history.append("start", from_iteration=iteration, tasks=self._context.tasks, gpus=self._context.gpus)

    def save(self, iteration: int, event: SaveEvent, files: Mapping[str, Path], meta: Meta) -> None:
        """Save a checkpoint at `iteration`, then tell of it: whoever reads of a checkpoint finds it whole."""
        begun_s = time.monotonic()
        saved = self._store.save(self._context.job_id, iteration, files, meta)
        self._store.prune(self._context.job_id, self._keep)
        self.log.checkpoint(iteration, saved.location, time.monotonic() - begun_s, saved.size_bytes)
        self.note(iteration, event)

    def note(self, iteration: int, event: SaveEvent) -> None:
        """Note in the history that the job is safe at `iteration`."""
        self._history.append(event, iteration=iteration, iterations_run=iteration - self._started_at)

    def validated(self, iteration: int, loss: float, accuracy: float | None) -> None:
        """Log the held-out loss, and accuracy where there is one; the last line of a run that reached its end."""
        self.log.validation(iteration, loss, accuracy)
        # JSON has no NaN: a diverged loss is left out of the history and stays in the log.
        self._history.append(
            "validation", iteration=iteration, loss=loss if math.isfinite(loss) else None, accuracy=accuracy
        )


def restore(store: CheckpointStore, job_id: str, into: Path, expected: Meta, *, after: int = 0) -> Checkpoint | None:
    """Fetch the newest whole checkpoint into `into`, its content read once, or return None where there is none.

    Args:
        store: Where checkpoints lie.
        job_id: Whose.
        into: A folder of this task alone.
        expected: What the checkpoint's meta has to agree with.
        after: Iterations done by something else that saved under the same name: a checkpoint of no more is not ours.

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
    """The log that task programs write to."""
    return TrainingLog(sys.stderr)
