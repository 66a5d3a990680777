"""Call Keras' callbacks from our loop: a learner that wraps another one and counts epochs."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

import keras  # type: ignore[import-untyped]

from tf_jobs.keras_callback_state import CallbackState
from tf_jobs.keras_learner import KerasLearner
from tf_jobs.learner import StepOutcome
from tf_jobs.saver import Snapshot
from tf_jobs.workers import PeerLostError
from themis.errors import InputError
from themis.values import Value

CALLBACKS_NAME = "callbacks.json"
"""File in a checkpoint: callback state, the epoch with the sum and number of its losses, and the earlier history."""

REFUSED = ("BackupAndRestore", "EarlyStopping", "TerminateOnNaN")
"""Callbacks of Keras that save or end the run, which Themis does itself."""


class Length(Value, frozen=True, kw_only=True):
    """The length of a run: iterations in total, samples per pass over the data, samples per iteration.

    A batch may span two passes. It belongs to the pass in which it begins, and ends it.
    """

    iterations: int
    samples: int
    batch_size: int

    @property
    def epochs(self) -> int:
        """The number of epochs; the last one may be incomplete."""
        return self.place_of(self.iterations)[0] + 1

    @property
    def steps(self) -> int:
        """The maximum number of iterations per epoch."""
        return -(-self.samples // self.batch_size)

    def place_of(self, iteration: int) -> tuple[int, int]:
        """Return the epoch and the batch in it, both from 0, of an iteration, from 1."""
        epoch = (iteration - 1) * self.batch_size // self.samples
        return epoch, iteration - 1 + -epoch * self.samples // self.batch_size

    def ends_epoch(self, iteration: int) -> bool:
        """Whether an iteration is the last of its epoch."""
        return self.place_of(iteration + 1)[0] > self.place_of(iteration)[0]


class Stop(Protocol):
    """Whether the job has been asked to stop."""

    def requested(self) -> bool:
        """Whether a stop was requested on this task."""
        ...

    def requested_by_peer(self) -> None:
        """Request a stop, since another task was asked to stop."""
        ...


class CalledBack:
    """A Keras learner that calls callbacks for every iteration, on every task.

    An epoch ends with an evaluation on the held-out data. This happens before the next iteration, after any checkpoint
    of its last iteration. So a checkpoint always belongs to an epoch that has not ended, and a stop need not wait for
    the evaluation: the next start repeats it. After a stop within an epoch, the epoch continues without another
    `on_epoch_begin`. An epoch in which the run ends has no end.

    Attributes:
        history: As Keras' `fit` returns it, of all ended epochs over all starts, with `loss` and `val_..`.

    Args:
        learner: The wrapped learner.
        model: Its model.
        callbacks: Keras' callbacks or the user's own; none on a task that calls no callbacks.
        length: The length of the run.
        busy: Called repeatedly during work that may take longer than an iteration.
        stop: The stop request of the job.

    Raises:
        InputError: An object is no Keras callback, or is one that saves or ends the run.
    """

    def __init__(
        self,
        learner: KerasLearner,
        model: Any,
        callbacks: Sequence[Any],
        length: Length,
        busy: Callable[[], None],
        stop: Stop,
    ) -> None:
        for callback in callbacks:
            _check(callback)
            callback.set_params({"epochs": length.epochs, "steps": length.steps, "verbose": 0})
            callback.set_model(model)
        self._learner, self._model, self._callbacks = learner, model, callbacks
        self._length, self._busy, self._stop = length, busy, stop
        self._state = CallbackState(callbacks)
        self._epoch, self._loss_sum, self._batches = -1, 0.0, 0
        self._epoch_logs: dict[str, float] = {}
        self._begun = False
        self.history = keras.callbacks.History()
        self.history.epoch = []
        self.history.set_model(model)

    @property
    def parameters(self) -> int:
        """The number of the model's weights."""
        return self._learner.parameters

    def step(self, iteration: int, *, stop: bool) -> StepOutcome:
        """Do an iteration and call the callbacks of what begins and ends with it.

        Raises:
            InputError: A callback asked to end the run, or keeps a value that cannot be saved.
            PeerLostError: Another task has died, or all were asked to stop before the iteration. It was not done.
        """
        epoch, batch = self._length.place_of(iteration)
        if not self._begun:
            self._begin()
        if batch == 0 and epoch != self._epoch:
            self._end_epoch_before(iteration)
            self._epoch, self._loss_sum, self._batches = epoch, 0.0, 0
            self._call("on_epoch_begin", epoch, {})
        self._call("on_train_batch_begin", batch, {})
        outcome = self._learner.step(iteration, stop=stop)
        self._loss_sum, self._batches = self._loss_sum + outcome.loss, self._batches + 1
        self._call("on_train_batch_end", batch, {"loss": outcome.loss})
        self._refuse_to_end(iteration)
        return outcome

    def ended(self) -> None:
        """End the run after its last iteration is saved. Calls no callback if this start had no iteration to do."""
        # A checkpoint belongs to an epoch that has not ended, so every start that gets here evaluates the last epoch.
        if self._batches and self._length.ends_epoch(self._length.iterations):
            self._log_epoch_end(self._length.iterations, self._learner.evaluate(self._alive))
        if self._begun:
            self._call("on_train_end", self._epoch_logs)

    def validate(self) -> tuple[float, float | None] | None:
        """As in the wrapped learner."""
        return self._learner.validate()

    def snapshot(self) -> Snapshot:
        """As in the wrapped learner, with the state of the callbacks."""
        weights = self._learner.snapshot()
        past = {name: list(values) for name, values in self.history.history.items()}
        ours = {
            "epoch": [self._epoch, self._loss_sum, self._batches],
            "callbacks": self._state.taken(),
            "history": {"epoch": list(self.history.epoch), "history": past},
        }

        def write(folder: Path) -> dict[str, Path]:
            path = folder / CALLBACKS_NAME
            path.write_text(json.dumps(ours), encoding="utf-8")
            return {**weights(folder), CALLBACKS_NAME: path}

        return write

    def read_state(self, folder: Path) -> None:
        """As in the wrapped learner. The checkpoint may be of a run without callbacks."""
        self._learner.read_state(folder)
        path = folder / CALLBACKS_NAME
        if path.is_file():
            ours = json.loads(path.read_text(encoding="utf-8"))
            self._epoch, self._loss_sum, self._batches = ours["epoch"]
            self._state.restore(ours["callbacks"])
            # Older checkpoints have no history.
            vars(self.history).update(ours.get("history", {}))

    def digest(self) -> int:
        """As in the wrapped learner."""
        return self._learner.digest()

    def _begin(self) -> None:
        self._model.stop_training = False
        self._call("on_train_begin", {})
        self._state.begin()
        self._begun = True

    def _end_epoch_before(self, iteration: int) -> None:
        """End the epoch if the previous iteration was its last. After a stop, leave that to the next start."""
        if self._batches == 0:
            return  # Of the run's first iteration there is none before, nor of a checkpoint without callbacks.
        self._busy()
        held_out = {} if self._stop.requested() else self._learner.evaluate(self._goes_on)
        if self._learner.any_task(self._stop.requested()):
            self._stop.requested_by_peer()
            self._busy()
            # The loop handles this like a peer that stopped first: it saves the previous iteration.
            raise PeerLostError("the job was asked to stop at the end of an epoch", value=iteration - 1)
        self._log_epoch_end(iteration - 1, held_out)
        self._refuse_to_end(iteration - 1)

    def _log_epoch_end(self, iteration: int, held_out: dict[str, float]) -> None:
        self._epoch_logs = {
            "loss": self._loss_sum / self._batches,
            **{f"val_{name}": value for name, value in held_out.items()},
        }
        epoch = self._length.place_of(iteration)[0]
        self.history.epoch.append(epoch)
        for name, value in self._epoch_logs.items():
            self.history.history.setdefault(name, []).append(value)
        if self._begun:
            self._call("on_epoch_end", epoch, self._epoch_logs)
            self._state.check()

    def _refuse_to_end(self, iteration: int) -> None:
        if self._model.stop_training:
            raise InputError(
                "a callback has set stop_training", value=iteration, remedy="leave it to the tuner, or set epochs"
            )

    def _goes_on(self) -> bool:
        return self._alive() and not self._stop.requested()

    def _alive(self) -> bool:
        self._busy()
        return True

    def _call(self, name: str, *arguments: object) -> None:
        for callback in self._callbacks:
            getattr(callback, name)(*arguments)


def _check(callback: object) -> None:
    if not isinstance(callback, keras.callbacks.Callback):
        raise InputError(
            "not a callback of Keras", value=type(callback).__name__, remedy="see keras.callbacks.Callback"
        )
    for name in REFUSED:
        if isinstance(callback, getattr(keras.callbacks, name)):
            raise InputError(
                "a callback that fit does not take", value=name, remedy="Themis saves and ends runs itself"
            )
