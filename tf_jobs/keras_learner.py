"""A Keras model in training by our loop: any number of tasks do the same iteration together."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras  # type: ignore[import-untyped]
import numpy as np
from numpy.typing import NDArray

from tf_jobs.batch_sums import batch_sum
from tf_jobs.context import TaskContext
from tf_jobs.data import batch_indices
from tf_jobs.flags import Values
from tf_jobs.learner import STATE_NAME, StepOutcome, snapshot_of, value_of
from tf_jobs.saver import Snapshot
from tf_jobs.workers import Workers, exchange, peer_lost
from themis.errors import InputError


class KerasLearner:
    """Trains a compiled Keras model.

    Every task has the whole model and its part of each batch; one collective sums the gradients, and also means of what
    layers keep beside their weights, such as a normalisation's moving averages.
    The loss is taken for a mean over samples.

    Args:
        tf: The tensorflow module.
        model: The compiled model.
        data: Inputs and answers, all of them on every task.
        validation: Held-out inputs and answers, or None.
        values: batch_size, seed and ordered_parts of the run.
        context: This task's place among the job's tasks.
        workers: The job's tasks.

    Raises:
        InputError: The model has layers that no parts in order can be made of.
    """

    def __init__(
        self,
        tf: Any,
        model: Any,
        data: tuple[Any, Any],
        validation: tuple[Any, Any] | None,
        values: Values,
        context: TaskContext,
        workers: Workers,
    ) -> None:
        self._tf, self._model, self._workers = tf, model, workers
        self._data, self._validation = data, validation
        self._samples = samples_of(data[0])
        self._seed, self._batch_size = values.whole("seed"), values.whole("batch_size")
        self._tasks = context.tasks
        parts = values.whole("ordered_parts")
        self._sum = batch_sum(tf, context, batch_size=self._batch_size, parts=parts)
        if not model.built:
            model(_rows_of(data[0], np.arange(1)))
        if parts:
            _check_parts_can_be(model)
            tf.config.experimental.enable_op_determinism()
        model.optimizer.build(model.trainable_variables)
        self._kept = [v for v in model.non_trainable_variables if _floating(v)]
        if context.tasks > 1:
            self._begin_alike(context)
        self._joint_step = tf.function(self._trace_step, autograph=False)
        self._joint_sum = tf.function(lambda number: workers.run(workers.total, number), autograph=False)

    @property
    def parameters(self) -> int:
        """Number of the model's weights, which tells models apart."""
        return int(self._model.count_params())

    def step(self, iteration: int, *, stop: bool) -> StepOutcome:
        """Do iteration `iteration` (from 1) together with the other tasks; `stop` tells them to make it the last.

        Raises:
            PeerLostError: Another task is gone; the model is as after the iteration before.
        """
        tf = self._tf
        rows = batch_indices(seed=self._seed, iteration=iteration, batch_size=self._batch_size, samples=self._samples)[
            self._sum.rows
        ]
        x, y = _rows_of(self._data, rows)
        try:
            loss, asked = self._joint_step(x, y, tf.constant(float(stop)))
            return StepOutcome(loss=float(loss), stop=float(asked) > 0.0)
        except tf.errors.OpError as error:
            if self._tasks == 1:
                raise
            raise peer_lost(error) from error

    def validate(self) -> tuple[float, float | None] | None:
        """Loss on the held-out data, and the first metric that is an accuracy."""
        told = self.evaluate()
        if not told:
            return None
        accuracy = next((value for name, value in told.items() if name.endswith(("acc", "accuracy"))), None)
        return told["loss"], accuracy

    def evaluate(self, goes_on: Callable[[], bool] = lambda: True) -> dict[str, float]:
        """Loss and metrics on the held-out data, by Keras' names; none without such data.

        Args:
            goes_on: Asked after every batch. Once it says no the evaluation ends, and tells of what it has seen.
        """
        if self._validation is None:
            return {}
        told = self._model.evaluate(
            *self._validation,
            batch_size=self._batch_size,
            verbose=0,
            return_dict=True,
            callbacks=[_asking(self._model, goes_on)],
        )
        return {name: float(value) for name, value in told.items()}

    def any_task(self, holds: bool) -> bool:
        """Whether something holds for any task; all of them ask at the same place.

        Raises:
            PeerLostError: Another task is gone.
        """
        if self._tasks == 1:
            return holds
        try:
            return float(self._joint_sum(self._tf.constant(float(holds)))) > 0.0
        except self._tf.errors.OpError as error:
            raise peer_lost(error) from error

    def snapshot(self) -> Snapshot:
        """The variables of model and optimizer as they are now."""
        return snapshot_of({name: value_of(self._tf, variable) for name, variable in self._variables().items()})

    def read_state(self, folder: Path) -> None:
        """Take over the variables of a checkpoint whose files are in `folder`.

        Raises:
            InputError: They are of another model or optimizer.
        """
        variables = self._variables()
        with np.load(folder / STATE_NAME, allow_pickle=False) as arrays:
            theirs = {name: array.shape for name, array in arrays.items()}
            if theirs != {name: tuple(variable.shape) for name, variable in variables.items()}:
                raise InputError(
                    "the checkpoint is of another model or optimizer",
                    value=self._model.name,
                    remedy="use another job id or checkpoint folder, or the model of the first run",
                )
            for name, variable in variables.items():
                variable.assign(arrays[name])

    def digest(self) -> int:
        """A checksum of weights and optimizer, equal on tasks that are in the same state."""
        checksum = 0
        for variable in (*self._model.weights, *self._model.optimizer.variables):
            if _floating(variable):
                checksum = zlib.crc32(_array(variable).tobytes(), checksum)
        return checksum

    def _variables(self) -> dict[str, Any]:
        """All that a checkpoint holds, by names that do not depend on those of the layers."""
        groups = {"model": self._model.variables, "optimizer": self._model.optimizer.variables}
        return {f"{group}-{number:04d}": v for group, them in groups.items() for number, v in enumerate(them)}

    def _begin_alike(self, context: TaskContext) -> None:
        """Give all tasks the chief's weights, as scripts rarely seed them."""
        weights = [variable for variable in self._model.weights if _floating(variable)]
        flat = np.concatenate([_array(variable).astype(np.float64).ravel() for variable in weights])
        theirs = exchange(self._tf, self._workers, flat if context.chief else np.zeros_like(flat))
        ends = np.cumsum([_array(variable).size for variable in weights])
        for variable, piece in zip(weights, np.split(theirs, ends[:-1]), strict=True):
            variable.assign(piece.reshape(variable.shape))

    def _trace_step(self, x: Any, y: Any, stop: Any) -> tuple[Any, Any]:
        """The graph of one joint step."""
        tf = self._tf
        # Only the sum is for all tasks together: within a strategy, Keras would divide losses by their number.
        mine = self._sum.mine(lambda rows: self._share(_part_of(x, rows), _part_of(y, rows)), stop)
        summed = self._sum.added(self._workers.run(self._workers.total, mine))
        changed = (*self._model.trainable_variables, *self._kept)
        pieces = tf.split(summed, [*(int(np.prod(v.shape)) for v in changed), 1, 1])
        shaped = [tf.cast(tf.reshape(piece, v.shape), v.dtype) for piece, v in zip(pieces[:-2], changed, strict=True)]
        weights = len(self._model.trainable_variables)
        self._model.optimizer.apply(shaped[:weights], self._model.trainable_variables)
        for variable, mean in zip(self._kept, shaped[weights:], strict=True):
            variable.assign(mean)
        return pieces[-2][0], pieces[-1][0]

    def _share(self, x: Any, y: Any) -> Any:
        """What some samples add to the gradients, to what layers keep, and to the loss, summed over all tasks."""
        tf, model = self._tf, self._model
        with tf.GradientTape() as tape:
            answers = model(x, training=True)
            loss = model.compute_loss(x=x, y=y, y_pred=answers, training=True)
            scaled = model.optimizer.scale_loss(loss)
        gradients = tape.gradient(scaled, [v.value for v in model.trainable_variables], unconnected_gradients="zero")
        shared = [*gradients, *(v.value for v in self._kept), loss]
        weight = tf.cast(tf.shape(keras.tree.flatten(x)[0])[0], tf.float32) / self._batch_size
        flat = [tf.reshape(tf.cast(tf.convert_to_tensor(each), tf.float32), [-1]) * weight for each in shared]
        return tf.concat(flat, axis=0)


def _asking(model: Any, goes_on: Callable[[], bool]) -> Any:
    """A callback that ends an evaluation between two batches."""

    def ask(*_: object, **__: object) -> None:
        if not goes_on():
            model.stop_evaluating = True

    return keras.callbacks.LambdaCallback(on_test_batch_end=ask)


def samples_of(x: Any) -> int:
    """Number of rows of the first array in `x`."""
    return len(keras.tree.flatten(x)[0])


def _rows_of(data: Any, rows: NDArray[np.int64]) -> Any:
    """Those rows of every array in `data`."""
    return keras.tree.map_structure(lambda array: np.asarray(array)[rows], data)


def _part_of(data: Any, rows: slice) -> Any:
    """Those rows of every tensor in `data`."""
    return keras.tree.map_structure(lambda tensor: tensor[rows], data)


def _check_parts_can_be(model: Any) -> None:
    """Raise InputError where a model's layers have what goes on from one part of a batch to the next on a task."""
    if model.non_trainable_variables:
        raise InputError(
            "ordered_parts needs a model whose variables are all trained",
            value=model.non_trainable_variables[0].path,
            remedy="leave out dropout, normalisation that keeps averages, and frozen layers, or ordered_parts",
        )


def _array(variable: Any) -> NDArray[Any]:
    return np.asarray(keras.ops.convert_to_numpy(variable))


def _floating(variable: Any) -> bool:
    return "float" in str(variable.dtype)
