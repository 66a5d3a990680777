"""Sum over a batch that several tasks share: one share per task, or parts added in an order that no resize changes.

Floating-point addition is not associative. So the sum of two shares differs from the sum of three in its last bits, and
a network with rectifiers or maxima may then take another branch. `OrderedParts` splits the batch itself into parts, not
over the tasks. Each part gives the same bits on any task, and the parts are always added in the same order. EasyScale's
workers are independent of their GPUs in the same way (Li et al., SC'23).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from tf_jobs.context import TaskContext
from tf_jobs.data import task_rows
from tf_jobs.dealing import check_parts

Share = Callable[[slice], Any]
"""Computes what a range of the task's rows adds to the sum, as a flat tensor. Rows count from the task's first."""


class BatchSum(Protocol):
    """The rows of a batch that belong to this task, and the way to sum over all tasks.

    Attributes:
        rows: This task's rows of the batch.
    """

    rows: slice

    def mine(self, share: Share, stop: Any) -> Any:
        """Return this task's input to the collective, including `stop`."""
        ...

    def added(self, reduced: Any) -> Any:
        """Return the sum over all tasks, followed by that of `stop`, from the output of the collective."""
        ...


class TaskShares:
    """One share per task, added in the order of the collective.

    Args:
        tf: The tensorflow module.
        context: This task's position in the job.
        batch_size: Samples of a batch.
    """

    def __init__(self, tf: Any, context: TaskContext, batch_size: int) -> None:
        self._tf = tf
        self.rows = task_rows(batch_size=batch_size, task_index=context.task_index, tasks=context.tasks)

    def mine(self, share: Share, stop: Any) -> Any:
        """Return the task's share."""
        return self._tf.concat([share(slice(None)), [stop]], axis=0)

    def added(self, reduced: Any) -> Any:
        """Return the output as it is: the collective has added the shares."""
        return reduced


class OrderedParts:
    """The batch in a fixed number of parts. Each task computes consecutive parts one by one; they are added in order.

    Attributes:
        rows: This task's rows of the batch.
        bounds: The first row of each part of this task, and the row after the last, counted from its first row.

    Args:
        tf: The tensorflow module.
        context: This task's position in the job.
        batch_size: Samples of a batch.
        parts: At least the number of tasks, at most the number of samples.

    Raises:
        InputError: Too few parts, or too many.
    """

    def __init__(self, tf: Any, context: TaskContext, batch_size: int, parts: int) -> None:
        check_parts(parts, batch_size, context.tasks)
        self._tf = tf
        self._parts = parts
        self._own = task_rows(batch_size=parts, task_index=context.task_index, tasks=context.tasks)
        rows = [task_rows(batch_size=batch_size, task_index=part, tasks=parts) for part in range(parts)][self._own]
        self.rows = slice(rows[0].start, rows[-1].stop)
        self.bounds = [(each.start - rows[0].start, each.stop - rows[0].start) for each in rows]

    def mine(self, share: Share, stop: Any) -> Any:
        """Return all parts side by side. For each part, all tasks but one contribute zeros."""
        tf = self._tf
        own = tf.map_fn(
            lambda bounds: share(slice(bounds[0], bounds[1])),
            tf.constant(self.bounds),
            fn_output_signature=tf.float32,
            parallel_iterations=1,
        )
        every = tf.pad(own, [[self._own.start, self._parts - self._own.stop], [0, 0]])
        return tf.concat([tf.reshape(every, [-1]), [stop]], axis=0)

    def added(self, reduced: Any) -> Any:
        """Return the sum of the parts, added in their order."""
        tf = self._tf
        summed = tf.reduce_sum(tf.reshape(reduced[:-1], [self._parts, -1]), axis=0)
        return tf.concat([summed, reduced[-1:]], axis=0)


def batch_sum(tf: Any, context: TaskContext, *, batch_size: int, parts: int) -> BatchSum:
    """Return `OrderedParts` for 1 or more parts, `TaskShares` for 0. Raises InputError if `parts` does not fit."""
    if parts:
        return OrderedParts(tf, context, batch_size, parts)
    return TaskShares(tf, context, batch_size)
