"""Calls Keras' callbacks from our loop: a learner around a learner, which also counts epochs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import keras  # type: ignore[import-untyped]

from tf_jobs.keras_learner import KerasLearner
from tf_jobs.learner import StepOutcome
from tf_jobs.saver import Snapshot
from themis.errors import InputError

REFUSED = ("BackupAndRestore", "EarlyStopping", "TerminateOnNaN")
"""Callbacks of Keras that save the run or end it, which is Themis' own part."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Length:
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


class CalledBack:
    """A Keras learner whose iterations are told to callbacks, on every task alike.

    An epoch that a stop has cut begins once more at the next start, at the batch where it was: its losses are those
    since then. An epoch that the run ends in has no end. Held-out data is evaluated at the end of each epoch.

    Args:
        learner: What trains.
        model: Its model.
        callbacks: Keras' callbacks or the user's own.
        length: Of the run.
        busy: Called before what may take longer than an iteration.

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
    ) -> None:
        for callback in callbacks:
            _check(callback)
            callback.set_params({"epochs": length.epochs, "steps": length.steps, "verbose": 0})
            callback.set_model(model)
        self._learner, self._model, self._callbacks = learner, model, callbacks
        self._length, self._busy = length, busy
        self._losses: list[float] = []
        self._told: dict[str, float] = {}
        self._begun = False

    @property
    def parameters(self) -> int:
        """Number of the model's weights."""
        return self._learner.parameters

    def step(self, iteration: int, *, stop: bool) -> StepOutcome:
        """Do an iteration, and tell what began and ended with it.

        Raises:
            InputError: A callback has asked to end the run.
        """
        epoch, batch = self._length.place_of(iteration)
        if not self._begun:
            self._model.stop_training = False
            self._call("on_train_begin", {})
        if batch == 0 or not self._begun:
            self._losses = []
            self._call("on_epoch_begin", epoch, {})
        self._begun = True
        self._call("on_train_batch_begin", batch, {})
        outcome = self._learner.step(iteration, stop=stop)
        self._losses.append(outcome.loss)
        self._call("on_train_batch_end", batch, {"loss": outcome.loss})
        if self._length.ends_epoch(iteration):
            self._end_epoch(epoch)
        if self._model.stop_training:
            raise InputError(
                "a callback has set stop_training", value=iteration, remedy="leave it to the tuner, or set epochs"
            )
        return outcome

    def ended(self) -> None:
        """The last iteration of the run is done; nothing is told where this start had none to do."""
        if self._begun:
            self._call("on_train_end", self._told)

    def validate(self) -> tuple[float, float | None] | None:
        """As the learner's."""
        return self._learner.validate()

    def snapshot(self) -> Snapshot:
        """As the learner's; what callbacks keep to themselves is in no checkpoint."""
        return self._learner.snapshot()

    def read_state(self, folder: Path) -> None:
        """As the learner's."""
        self._learner.read_state(folder)

    def digest(self) -> int:
        """As the learner's."""
        return self._learner.digest()

    def _end_epoch(self, epoch: int) -> None:
        self._busy()
        held_out = {f"val_{name}": value for name, value in self._learner.evaluate().items()}
        self._told = {"loss": sum(self._losses) / len(self._losses), **held_out}
        self._call("on_epoch_end", epoch, self._told)

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
