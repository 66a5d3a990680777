"""Calls Keras' callbacks from our loop: a learner around a learner, which also counts epochs."""

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
"""In a checkpoint: what callbacks keep, the epoch, sum and number of its losses so far, and the history before it."""

REFUSED = ("BackupAndRestore", "EarlyStopping", "TerminateOnNaN")
"""Callbacks of Keras that save the run or end it, which is Themis' own part."""


class Length(Value, frozen=True, kw_only=True):
    """How long a run is: its iterations in all, samples of a pass over the data, samples of an iteration.

    A batch may lie in two passes; it counts to the one that it begins in, and ends it.
    """

    iterations: int
    samples: int
    batch_size: int

    @property
    def epochs(self) -> int:
        """Epochs, the last one perhaps in part."""
        return self.place_of(self.iterations)[0] + 1

    @property
    def steps(self) -> int:
        """Iterations of an epoch at most."""
        return -(-self.samples // self.batch_size)

    def place_of(self, iteration: int) -> tuple[int, int]:
        """Epoch and batch in it, both from 0, of an iteration, from 1."""
        epoch = (iteration - 1) * self.batch_size // self.samples
        return epoch, iteration - 1 + -epoch * self.samples // self.batch_size

    def ends_epoch(self, iteration: int) -> bool:
        """Whether an iteration is the last of its epoch."""
        return self.place_of(iteration + 1)[0] > self.place_of(iteration)[0]


class Stop(Protocol):
    """Whether the job has been asked to stop."""

    def requested(self) -> bool:
        """Whether this task knows of a stop."""
        ...

    def told_by_peer(self) -> None:
        """Another task has been asked to stop: so is this one."""
        ...


class CalledBack:
    """A Keras learner whose iterations are told to callbacks, on every task alike.

    An epoch ends, with an evaluation of the held-out data, when its last iteration is saved where that was due, and
    before the next one: a checkpoint is always of an epoch that has not ended. So a stop need not wait for the
    evaluation. It ends it, and the next start does it anew. An epoch that a stop has cut goes on where it was,
    without another beginning. An epoch that the run ends in has no end.

    Attributes:
        history: As Keras' `fit` returns it, of all ended epochs over all starts; `loss` and `val_..` are in it.

    Args:
        learner: What trains.
        model: Its model.
        callbacks: Keras' callbacks or the user's own; none on a task that only does what the others do.
        length: Of the run.
        busy: Called again and again in what may take longer than an iteration.
        stop: Of the job.

    Raises:
        InputError: Something is no callback of Keras, or one that saves or ends the run.
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
        self._told: dict[str, float] = {}
        self._begun = False
        self.history = keras.callbacks.History()
        self.history.epoch = []
        self.history.set_model(model)

    @property
    def parameters(self) -> int:
        """Number of the model's weights."""
        return self._learner.parameters

    def step(self, iteration: int, *, stop: bool) -> StepOutcome:
        """Do an iteration, and tell what began and ended with it.

        Raises:
            InputError: A callback has asked to end the run, or keeps what no checkpoint holds.
            PeerLostError: Another task is gone, or all were asked to stop before the iteration, which is not done then.
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
        """The last iteration of the run is done and saved; nothing is told where this start had none to do."""
        # A checkpoint is of an epoch that has not ended, so the last one is evaluated by every start that comes here.
        if self._batches and self._length.ends_epoch(self._length.iterations):
            self._tell_end(self._length.iterations, self._learner.evaluate(self._alive))
        if self._begun:
            self._call("on_train_end", self._told)

    def validate(self) -> tuple[float, float | None] | None:
        """As the learner's."""
        return self._learner.validate()

    def snapshot(self) -> Snapshot:
        """As the learner's, with what callbacks keep to themselves."""
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
        """As the learner's; the checkpoint may be of a run that had no callbacks."""
        self._learner.read_state(folder)
        path = folder / CALLBACKS_NAME
        if path.is_file():
            ours = json.loads(path.read_text(encoding="utf-8"))
            self._epoch, self._loss_sum, self._batches = ours["epoch"]
            self._state.restore(ours["callbacks"])
            # Checkpoints had no history once.
            vars(self.history).update(ours.get("history", {}))

    def digest(self) -> int:
        """As the learner's."""
        return self._learner.digest()

    def _begin(self) -> None:
        self._model.stop_training = False
        self._call("on_train_begin", {})
        self._state.begin()
        self._begun = True

    def _end_epoch_before(self, iteration: int) -> None:
        """End the epoch that the iteration before was the last of, or leave that to the next start."""
        if self._batches == 0:
            return  # Of the run's first iteration there is none before, nor of a checkpoint without callbacks.
        self._busy()
        held_out = {} if self._stop.requested() else self._learner.evaluate(self._goes_on)
        if self._learner.any_task(self._stop.requested()):
            self._stop.told_by_peer()
            self._busy()
            # To the loop this is a peer that was quicker than the iteration: it saves the one before.
            raise PeerLostError("the job was asked to stop at the end of an epoch", value=iteration - 1)
        self._tell_end(iteration - 1, held_out)
        self._refuse_to_end(iteration - 1)

    def _tell_end(self, iteration: int, held_out: dict[str, float]) -> None:
        self._told = {
            "loss": self._loss_sum / self._batches,
            **{f"val_{name}": value for name, value in held_out.items()},
        }
        epoch = self._length.place_of(iteration)[0]
        self.history.epoch.append(epoch)
        for name, value in self._told.items():
            self.history.history.setdefault(name, []).append(value)
        if self._begun:
            self._call("on_epoch_end", epoch, self._told)
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
