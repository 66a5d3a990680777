"""The training loop: which iteration runs, when it is logged and saved, and when the run ends."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from am.checkpoints.store import Meta
from tf_jobs.exit_codes import EXIT_CHECKPOINTED, EXIT_DONE
from tf_jobs.flags import Values
from tf_jobs.learner import StepOutcome
from tf_jobs.recorder import Recorder, SaveEvent
from tf_jobs.workers import PeerLostError


class Trainee(Protocol):
    """What the loop needs of a learner."""

    def step(self, iteration: int, *, stop: bool) -> StepOutcome:
        """Do one iteration with the other tasks."""
        ...

    def validate(self) -> tuple[float, float]:
        """Loss and accuracy on held-out data."""
        ...

    def write_state(self, folder: Path) -> dict[str, Path]:
        """Write the state as files."""
        ...


class TrainingRun:
    """One incarnation's iterations, as one task does them.

    Args:
        learner: What is trained.
        values: The run's flags.
        recorder: The chief's recorder; None on the other tasks, which neither log nor save.
        scratch: A folder of this task alone.
        meta: Noted in every checkpoint.
    """

    def __init__(self, learner: Trainee, values: Values, recorder: Recorder | None, scratch: Path, meta: Meta) -> None:
        self._learner = learner
        self._last = values.whole("iterations")
        self._log_every = values.whole("log_every")
        self._checkpoint_every = values.whole("checkpoint_every")
        self._recorder = recorder
        self._scratch = scratch
        self._meta = meta

    def go(self, start: int, stop_requested: Callable[[], bool], beat: Callable[[bool], None]) -> int:
        """Run iterations `start` + 1 up to the last one, or until any task is asked to stop; returns the exit code.

        Args:
            start: Iterations already done.
            stop_requested: Whether this task has been asked to stop.
            beat: Called after every iteration, with whether the chief saves before the next one.

        Raises:
            PeerLostError: Another task is gone, and this one was not asked to stop.
        """
        done = start
        while done < self._last:
            try:
                outcome = self._learner.step(done + 1, stop=stop_requested())
            except PeerLostError:
                if not stop_requested():
                    raise
                # All tasks were told to stop, and a peer was quicker than this iteration: it does not count.
                return self._stopped(start, done)
            done += 1
            due = done % self._checkpoint_every == 0
            beat(due or outcome.stop or done == self._last)
            self._log(done, outcome.loss, first=done == start + 1)
            if done < self._last:
                if outcome.stop:
                    return self._stopped(start, done)
                if due:
                    self._save(done, "checkpoint")
        self._ended(start, done)
        return EXIT_DONE

    def _log(self, iteration: int, loss: float, *, first: bool) -> None:
        if self._recorder and (first or iteration % self._log_every == 0):
            self._recorder.log.loss(iteration, loss, time.monotonic())

    def _save(self, iteration: int, event: SaveEvent) -> None:
        if self._recorder:
            self._recorder.save(iteration, event, self._learner.write_state(self._scratch), self._meta)

    def _stopped(self, start: int, done: int) -> int:
        if done > start:
            self._save(done, "stop")
        elif self._recorder:
            self._recorder.note(done, "stop")
        return EXIT_CHECKPOINTED

    def _ended(self, start: int, done: int) -> None:
        if done > start or done == 0:
            self._save(done, "end")
        elif self._recorder:
            self._recorder.note(done, "end")
        if self._recorder:
            self._recorder.validated(done, *self._learner.validate())
