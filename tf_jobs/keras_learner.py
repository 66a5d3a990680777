"""Train a Keras model in our loop: any number of tasks do the same iteration together."""

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

    Every task has the whole model and its share of each batch. One collective sums the gradients. It also averages the
    values that layers keep in addition to their weights, such as moving averages of a normalisation. The loss must be a
    mean over samples.

    Args:
        tf: The tensorflow module.
        model: The compiled model.
        data: Inputs and labels, all of them on every task.
        validation: Held-out inputs and labels, or None.
        values: batch_size, seed and ordered_parts of the run.
        context: This task's position in the job.
        workers: The job's tasks.

    Raises:
        InputError: The model has layers that cannot be computed in ordered parts.
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
        """The number of the model's weights, which distinguishes models."""
        return int(self._model.count_params())

    def step(self, iteration: int, *, stop: bool) -> StepOutcome:
        """Do iteration `iteration` (from 1) together with the other tasks. `stop` makes it the last one for all.

        Raises:
            PeerLostError: Another task has died. The model is as after the previous iteration.
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
        """Return the loss on the held-out data, and the first metric that is an accuracy."""
        metrics = self.evaluate()
        if not metrics:
            return None
        accuracy = next((value for name, value in metrics.items() if name.endswith(("acc", "accuracy"))), None)
        return metrics["loss"], accuracy

    def evaluate(self, goes_on: Callable[[], bool] = lambda: True) -> dict[str, float]:
        """Return loss and metrics on the held-out data by Keras' names, or an empty mapping without such data.

        Args:
            goes_on: Called after every batch. If it returns False, the evaluation ends and covers the batches so far.
        """
        if self._validation is None:
            return {}
        metrics = self._model.evaluate(
            *self._validation,
            batch_size=self._batch_size,
            verbose=0,
            return_dict=True,
            callbacks=[_asking(self._model, goes_on)],
        )
        return {name: float(value) for name, value in metrics.items()}

    def any_task(self, holds: bool) -> bool:
        """Whether a condition holds on any task. All tasks must call it at the same point.

        Raises:
            PeerLostError: Another task has died.
        """
        if self._tasks == 1:
            return holds
        try:
            return float(self._joint_sum(self._tf.constant(float(holds)))) > 0.0
        except self._tf.errors.OpError as error:
            raise peer_lost(error) from error

    def snapshot(self) -> Snapshot:
        """Return a copy of the variables of model and optimizer."""
        return snapshot_of({name: value_of(self._tf, variable) for name, variable in self._variables().items()})

    def read_state(self, folder: Path) -> None:
        """Load the variables of a checkpoint from the files in `folder`.

        Raises:
            InputError: The checkpoint is of another model or optimizer.
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
        """Return a checksum of weights and optimizer, equal on tasks with equal state."""
        checksum = 0
        for variable in (*self._model.weights, *self._model.optimizer.variables):
            if _floating(variable):
                checksum = zlib.crc32(_array(variable).tobytes(), checksum)
        return checksum

    def _variables(self) -> dict[str, Any]:
        """Return all variables of a checkpoint, by names that do not depend on the layers' names."""
        groups = {"model": self._model.variables, "optimizer": self._model.optimizer.variables}
        return {f"{group}-{number:04d}": v for group, them in groups.items() for number, v in enumerate(them)}

    def _begin_alike(self, context: TaskContext) -> None:
        """Set the chief's weights on all tasks, since scripts rarely seed their initial weights."""
        weights = [variable for variable in self._model.weights if _floating(variable)]
        flat = np.concatenate([_array(variable).astype(np.float64).ravel() for variable in weights])
        theirs = exchange(self._tf, self._workers, flat if context.chief else np.zeros_like(flat))
        ends = np.cumsum([_array(variable).size for variable in weights])
        for variable, piece in zip(weights, np.split(theirs, ends[:-1]), strict=True):
            variable.assign(piece.reshape(variable.shape))

    def _trace_step(self, x: Any, y: Any, stop: Any) -> tuple[Any, Any]:
        """Build the graph of one joint step."""
        tf = self._tf
        # Only the sum runs within the strategy. Otherwise Keras would divide losses by the number of tasks.
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
        """Return gradients, values that layers keep, and the loss, summed over samples and tasks."""
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
    """Return the number of rows of the first array in `x`."""
    return len(keras.tree.flatten(x)[0])


def _rows_of(data: Any, rows: NDArray[np.int64]) -> Any:
    """Return these rows of every array in `data`."""
    return keras.tree.map_structure(lambda array: np.asarray(array)[rows], data)


def _part_of(data: Any, rows: slice) -> Any:
    """Return these rows of every tensor in `data`."""
    return keras.tree.map_structure(lambda tensor: tensor[rows], data)


def _check_parts_can_be(model: Any) -> None:
    """Raise InputError if layers of the model carry state from one part of a batch to the next."""
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
