"""Sums over a batch that several tasks share: one share a task, or parts added in an order that no resize changes.

Floating-point addition is not associative, so the sum of two shares differs from that of three in its last bits, and a
net in which a rectifier or a maximum decides may take another branch for it. Parts that belong to the batch, not to
the tasks, are computed and added alike whoever does which, as EasyScale's workers are whatever GPUs they run on (Li et
al., SC'23).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from tf_jobs.context import TaskContext
from tf_jobs.data import task_rows
from tf_jobs.dealing import check_parts

Share = Callable[[slice], Any]
"""What some of the task's rows, counted from its first, add to the sum: a flat tensor."""


class BatchSum(Protocol):
    """Which rows of a batch are this task's, and how the tasks' shares become one sum.

    Attributes:
        rows: This task's rows of the batch.
    """

    rows: slice

    def mine(self, share: Share, stop: Any) -> Any:
        """What this task gives to the collective, `stop` among it."""
        ...

    def added(self, told: Any) -> Any:
        """The sum of all shares with that of `stop` behind it, of what the collective told."""
        ...


class TaskShares:
    """One share a task, added as the collective pleases.

    Args:
        tf: The tensorflow module.
        context: This task's place among them.
        batch_size: Samples of a batch.
    """

    def __init__(self, tf: Any, context: TaskContext, batch_size: int) -> None:
        self._tf = tf
        self.rows = task_rows(batch_size=batch_size, task_index=context.task_index, tasks=context.tasks)

    def mine(self, share: Share, stop: Any) -> Any:
        """The task's share."""
        return self._tf.concat([share(slice(None)), [stop]], axis=0)

    def added(self, told: Any) -> Any:
        """The collective has added them."""
        return told


class OrderedParts:
    """The batch in a fixed number of parts, dealt to the tasks in runs, each computed by itself, added in their order.

    Attributes:
        rows: This task's rows of the batch.
        bounds: First row of each of its parts and the one after its last, counted from its first.

    Args:
        tf: The tensorflow module.
        context: This task's place among them.
        batch_size: Samples of a batch.
        parts: As many as tasks at least, as samples at most.

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
        """All parts, apart: to each, all tasks but one add zeros, which change nothing."""
        tf = self._tf
        own = tf.map_fn(
            lambda bounds: share(slice(bounds[0], bounds[1])),
            tf.constant(self.bounds),
            fn_output_signature=tf.float32,
            parallel_iterations=1,
        )
        every = tf.pad(own, [[self._own.start, self._parts - self._own.stop], [0, 0]])
        return tf.concat([tf.reshape(every, [-1]), [stop]], axis=0)

    def added(self, told: Any) -> Any:
        """The parts in their order."""
        tf = self._tf
        summed = tf.reduce_sum(tf.reshape(told[:-1], [self._parts, -1]), axis=0)
        return tf.concat([summed, told[-1:]], axis=0)


def batch_sum(tf: Any, context: TaskContext, *, batch_size: int, parts: int) -> BatchSum:
    """`OrderedParts` for a number of parts, `TaskShares` for 0; raises InputError for a number that does not fit."""
    if parts:
        return OrderedParts(tf, context, batch_size, parts)
    return TaskShares(tf, context, batch_size)
