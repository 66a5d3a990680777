"""The training loop: runs iterations, logs and saves them, and ends the run."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol

from tf_jobs.exit_codes import EXIT_CHECKPOINTED, EXIT_DONE
from tf_jobs.flags import Values
from tf_jobs.learner import StepOutcome
from tf_jobs.recorder import FULL_STORE_RETRY_S, Recorder, SaveEvent
from tf_jobs.saver import BackgroundSaver, Snapshot
from tf_jobs.workers import PeerLostError

SETTLE_LIMIT_S = 5.0
STOP_POLL_S = 0.2


class Trainee(Protocol):
    """The methods of a learner that the loop calls."""

    def step(self, iteration: int, *, stop: bool) -> StepOutcome:
        """Do one iteration together with the other tasks."""
        ...

    def validate(self) -> tuple[float, float | None] | None:
        """Return the held-out loss, and the accuracy or None. Returns None without such data."""
        ...

    def snapshot(self) -> Snapshot:
        """Copy the state to memory."""
        ...


class TrainingRun:
    """The iterations of one incarnation in one task.

    Args:
        learner: The learner to train.
        values: The run's flags.
        recorder: The chief's recorder; None on other tasks, which neither log nor save.
        saver: The chief's; None on the other tasks.
    """

    def __init__(
        self, learner: Trainee, values: Values, recorder: Recorder | None, saver: BackgroundSaver | None
    ) -> None:
        self._learner = learner
        self._last = values.whole("iterations")
        self._log_every = values.whole("log_every")
        self._checkpoint_every = values.whole("checkpoint_every")
        self._recorder = recorder
        self._saver = saver

    def go(self, start: int, stop_requested: Callable[[], bool], beat: Callable[[bool], None]) -> int:
        """Run iterations from `start` + 1 to the last one, or until any task is asked to stop. Returns the exit code.

        Args:
            start: Iterations already done.
            stop_requested: Whether this task was asked to stop.
            beat: Called after every iteration. The argument is whether the run ends: the chief then saves.

        Raises:
            PeerLostError: Another task has died, and this one was not asked to stop.
            CheckpointError: A checkpoint could not be saved.
        """
        done = start
        while done < self._last:
            try:
                outcome = self._learner.step(done + 1, stop=stop_requested())
            except PeerLostError:
                if not stop_requested():
                    self._settle()
                    raise
                # All tasks were asked to stop, and a peer left before this iteration ended: it does not count.
                return self._stopped(start, done)
            done += 1
            beat(outcome.stop or done == self._last)
            self._log(done, outcome.loss, first=done == start + 1)
            if done < self._last:
                if outcome.stop:
                    return self._stopped(start, done)
                self._offer(done)
        return self._ended(start, done, stop_requested, beat)

    def _log(self, iteration: int, loss: float, *, first: bool) -> None:
        if self._recorder and (first or iteration % self._log_every == 0):
            self._recorder.log.loss(iteration, loss, time.monotonic())

    def _offer(self, iteration: int) -> None:
        """Save a checkpoint in the background if one is due."""
        if self._saver:
            self._saver.check()
            if iteration % self._checkpoint_every == 0:
                self._saver.offer(iteration, self._learner.snapshot)

    def _save(self, iteration: int, event: SaveEvent) -> bool:
        return self._saver is None or self._saver.save(iteration, event, self._learner.snapshot)

    def _settle(self) -> None:
        """Wait briefly until a checkpoint in progress is written, although the job has failed."""
        if self._saver:
            self._saver.settle(SETTLE_LIMIT_S)

    def _stopped(self, start: int, done: int) -> int:
        if done > start:
            self._save(done, "stop")
        elif self._recorder:
            self._recorder.note(done, "stop")
        return EXIT_CHECKPOINTED

    def _ended(self, start: int, done: int, stop_requested: Callable[[], bool], beat: Callable[[bool], None]) -> int:
        if done > start or done == 0:
            while not self._save(done, "end"):
                # The store is full. The work is done, so there is time to wait for room.
                retry_at_s = time.monotonic() + FULL_STORE_RETRY_S
                while time.monotonic() < retry_at_s:
                    if stop_requested():
                        return EXIT_CHECKPOINTED
                    time.sleep(STOP_POLL_S)
                beat(True)
        elif self._recorder:
            self._recorder.note(done, "end")
        if self._recorder and (held_out := self._learner.validate()) is not None:
            self._recorder.validated(done, *held_out)
        return EXIT_DONE
