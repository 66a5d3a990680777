"""Train one network: joint steps with the other tasks, validation, and the state as files.

The state is one `.npz` file rather than `tf.train.Checkpoint`: the parameters and slots are a few flat arrays, so
NumPy alone can read and check them, one file has one checksum, and nothing in it knows the number of tasks.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tf_jobs.batch_sums import batch_sum
from tf_jobs.context import TaskContext
from tf_jobs.data import DataSet, batch_indices
from tf_jobs.flags import Values
from tf_jobs.models import Model
from tf_jobs.optimizers import rule
from tf_jobs.saver import Snapshot
from tf_jobs.workers import Workers, peer_lost
from themis.values import Value

STATE_NAME = "state.npz"


class StepOutcome(Value, frozen=True, kw_only=True):
    """The loss of one iteration over the whole batch, and whether any task was asked to stop."""

    loss: float
    stop: bool


def snapshot_of(arrays: Mapping[str, Any]) -> Snapshot:
    """Return a function that writes these arrays (see `value_of`) as the one file of a checkpoint.

    The caller must not change the arrays.
    """

    def write(folder: Path) -> dict[str, Path]:
        path = folder / STATE_NAME
        np.savez(path, **arrays)
        return {STATE_NAME: path}

    return write


def value_of(tf: Any, variable: Any) -> Any:
    """Return the present value of a TensorFlow or Keras variable, as an array or array-like. No step changes it.

    In memory it is the variable's own buffer: a step that writes to the variable writes to a copy, which TensorFlow
    makes faster than NumPy would here (see docs/explanation/elastic.md). A card's memory is too scarce to hold both.
    """
    value = tf.raw_ops.ReadVariableOp(resource=variable.handle, dtype=tf.as_dtype(variable.dtype))
    return value if "CPU" in value.device else value.numpy()


class Learner:
    """Trains a model of ours.

    Args:
        tf: The tensorflow module.
        model: The network.
        values: The run's flags.
        data: The data set.
        context: This task's position in the job.
        workers: The job's tasks.
    """

    def __init__(
        self, tf: Any, model: Model, values: Values, data: DataSet, context: TaskContext, workers: Workers
    ) -> None:
        self._tf = tf
        self._model = model
        self._data = data
        self._workers = workers
        self._seed = values.whole("seed")
        self._batch_size = values.whole("batch_size")
        self._dropout = values.number("dropout")
        self._rate = values.number("learning_rate")
        slot_names, self._update = rule(values.text("optimizer"))
        initial = model.initial(self._seed)
        self._variables: dict[str, Any] = {"params": tf.Variable(initial)}
        self._variables |= {name: tf.Variable(np.zeros_like(initial)) for name in slot_names}
        self._sum = batch_sum(tf, context, batch_size=self._batch_size, parts=values.whole("ordered_parts"))
        answers_a_sample = int(np.prod(data.train.labels.shape[1:], dtype=np.int64))
        self._answers = self._batch_size * answers_a_sample
        self._joint_step: Callable[..., Any] = tf.function(self._trace_step, autograph=False)
        self._evaluate: Callable[..., Any] = tf.function(self._trace_evaluation, autograph=False)

    def step(self, iteration: int, *, stop: bool) -> StepOutcome:
        """Do iteration `iteration` (from 1) together with the other tasks. `stop` makes it the last one for all.

        Raises:
            PeerLostError: Another task has died. The parameters are as after the previous iteration.
        """
        tf = self._tf
        rows = self._rows(iteration)
        train = self._data.train
        try:
            loss, asked = self._joint_step(
                tf.constant(train.inputs[rows]),
                tf.constant(train.labels[rows]),
                tf.constant(iteration, tf.int32),
                tf.constant(float(stop)),
            )
            return StepOutcome(loss=float(loss), stop=float(asked) > 0.0)
        except tf.errors.OpError as error:
            raise peer_lost(error) from error

    def validate(self) -> tuple[float, float]:
        """Return loss and accuracy on the validation part."""
        part = self._data.validation
        loss, accuracy = self._evaluate(part.inputs, part.labels)
        return float(loss), float(accuracy)

    def snapshot(self) -> Snapshot:
        """Return a copy of parameters and slots."""
        return snapshot_of({name: value_of(self._tf, variable) for name, variable in self._variables.items()})

    def read_state(self, folder: Path) -> None:
        """Load the parameters and slots of a checkpoint from the files in `folder`."""
        with np.load(folder / STATE_NAME, allow_pickle=False) as arrays:
            for name, variable in self._variables.items():
                variable.assign(arrays[name])

    def digest(self) -> int:
        """Return a checksum of parameters and slots, equal on tasks with equal state."""
        checksum = 0
        for variable in self._variables.values():
            checksum = zlib.crc32(variable.numpy().tobytes(), checksum)
        return checksum

    def _rows(self, iteration: int) -> Any:
        """Return this task's share of the batch of an iteration."""
        batch = batch_indices(
            seed=self._seed, iteration=iteration, batch_size=self._batch_size, samples=len(self._data.train.labels)
        )
        return batch[self._sum.rows]

    def _trace_step(self, inputs: Any, labels: Any, iteration: Any, stop: Any) -> tuple[Any, Any]:
        """Build the graph of one joint step. One collective sums gradient, loss and stop requests."""
        summed = self._workers.run(self._contribution, inputs, labels, iteration, stop)
        gradient, loss, asked = summed[:-2], summed[-2], summed[-1]
        slots: Mapping[str, Any] = self._variables
        self._update(self._tf, self._variables["params"], slots, gradient, iteration, self._rate)
        return loss, asked

    def _contribution(self, inputs: Any, labels: Any, iteration: Any, stop: Any) -> Any:
        """Return gradient, loss and stop requests, summed over all tasks."""
        mask = self._mask(iteration)

        def share(rows: slice) -> Any:
            return self._share(inputs[rows], labels[rows], None if mask is None else mask[rows])

        return self._sum.added(self._workers.total(self._sum.mine(share, stop)))

    def _share(self, inputs: Any, labels: Any, mask: Any) -> Any:
        """Return the sum of some samples' gradients, followed by the sum of their losses."""
        tf = self._tf
        params = self._variables["params"]
        with tf.GradientTape() as tape:
            logits = self._logits(params, inputs, mask)
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)
            loss = tf.reduce_sum(losses) / self._answers
        return tf.concat([tape.gradient(loss, params), [loss]], axis=0)

    def _mask(self, iteration: Any) -> Any:
        """Return the dropout mask of this task's rows, drawn for the whole batch, so that any tasks get the same."""
        if self._dropout == 0.0:
            return None
        tf = self._tf
        shape = (self._batch_size, self._model.hidden)
        uniform = tf.random.stateless_uniform(shape, seed=tf.stack([self._seed, iteration]))
        kept = tf.cast(uniform >= self._dropout, tf.float32) / (1.0 - self._dropout)
        return kept[self._sum.rows]

    def _logits(self, params: Any, inputs: Any, mask: Any) -> Any:
        return self._model.forward(self._tf, self._model.unpack(self._tf, params), inputs, mask)

    def _trace_evaluation(self, inputs: Any, labels: Any) -> tuple[Any, Any]:
        tf = self._tf
        logits = self._logits(self._variables["params"], inputs, None)
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)
        right = tf.argmax(logits, axis=-1, output_type=tf.int32) == labels
        return tf.reduce_mean(losses), tf.reduce_mean(tf.cast(right, tf.float32))
