"""The chief's records of a run: checkpoints, log lines and history, kept consistent."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Literal

from am.checkpoints.store import FULL_ERRNOS, Checkpoint, CheckpointStore, FullStoreError, Meta
from am.checkpoints.uri import open_store
from tf_jobs.context import TaskContext
from tf_jobs.history import History
from tf_jobs.logs import TrainingLog
from themis.errors import InputError

SaveEvent = Literal["checkpoint", "stop", "end"]

FIRST_PAUSE_S, LONGEST_PAUSE_S = 10.0, 600.0
"""Between two tries to save into a full store while training goes on; doubled with each."""

FULL_STORE_RETRY_S = 10.0
"""Between two tries after the last iteration."""


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
        self._pause_s = 0.0
        self._try_at_s = -math.inf

    def started(self, iteration: int, restore_s: float | None) -> None:
        """Record that the run begins after `iteration`. `restore_s` is the time to restore, None for a fresh start."""
        self._started_at = iteration
        if restore_s is not None:
            self.log.restored(iteration, restore_s)
        self._history.append("start", from_iteration=iteration, tasks=self._context.tasks, gpus=self._context.gpus)

    @property
    def backs_off(self) -> bool:
        """Whether the store was full a short time ago, so that saving is not worth a try yet."""
        return time.monotonic() < self._try_at_s

    def try_save(self, iteration: int, event: SaveEvent, write: Callable[[], Mapping[str, Path]], meta: Meta) -> bool:
        """Save a checkpoint, unless the store is full. Then log that, and wait longer until the next try.

        Args:
            iteration: Iterations done.
            event: Why it is saved.
            write: Writes the state as files, and returns them by name.
            meta: Written into the checkpoint.

        Returns:
            Whether the checkpoint is saved.

        Raises:
            CheckpointError: It cannot be saved for another reason.
        """
        try:
            self.save(iteration, event, write(), meta)
        except (FullStoreError, OSError) as error:
            # OSError: of the files of the state.
            if isinstance(error, OSError) and error.errno not in FULL_ERRNOS:
                raise
            self._pause_s = min(LONGEST_PAUSE_S, max(FIRST_PAUSE_S, 2 * self._pause_s))
            self._try_at_s = time.monotonic() + self._pause_s
            self.log.unsaved(iteration, str(error))
            return False
        self._pause_s = 0.0
        return True

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
