"""Sum numbers over the tasks of one job: alone, or with TensorFlow's multi-worker collectives."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, Protocol

import numpy as np

from tf_jobs.context import TaskContext
from themis.errors import ThemisError

AGREE_ROWS_DTYPE = np.float64


class PeerLostError(ThemisError, ConnectionError):
    """Another task of the job has died, so a collective failed."""


class Workers(Protocol):
    """The tasks of one job, seen from one of them."""

    def run(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Run `function` as this task's part of a joint step. Call it while tracing."""
        ...

    def total(self, tensor: Any) -> Any:
        """Return the sum of `tensor` over all tasks. Call it within `run`."""
        ...

    def __hash__(self) -> int:
        """Hash by identity: TensorFlow keeps traced functions per object."""
        ...


class Alone:
    """A job of one task: the sum is its own value."""

    def run(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call the function."""
        return function(*arguments)

    def total(self, tensor: Any) -> Any:
        """Return the tensor."""
        return tensor


class MirroredWorkers:
    """One process per task, joined by `tf.distribute.MultiWorkerMirroredStrategy` as TF_CONFIG says.

    Only the strategy's collectives are used. Each task has its own variables. They stay equal, because they start equal
    and see the same sums. So any task can evaluate and save without its peers.
    """

    def __init__(self, tf: Any) -> None:
        self._tf = tf
        self._strategy = tf.distribute.MultiWorkerMirroredStrategy()

    def run(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Run the function in the strategy's replica context. A task is one replica."""
        return self._strategy.run(function, args=arguments)

    def total(self, tensor: Any) -> Any:
        """All-reduce by sum."""
        tf = self._tf
        # identity: an argument of the traced function has no device yet, but the collective requires one.
        return tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.SUM, tf.identity(tensor))


def join_workers(tf: Any, context: TaskContext) -> Workers:
    """Return the workers of this job, after waiting for its peers."""
    return MirroredWorkers(tf) if context.tasks > 1 else Alone()


def agree(tf: Any, workers: Workers, context: TaskContext, facts: tuple[float, ...]) -> None:
    """Check that all tasks start from the same `facts`. This is also the first collective of all tasks.

    Raises:
        ThemisError: A task has other facts, for example because it restored another checkpoint.
    """
    mine = np.zeros((context.tasks, len(facts)), dtype=AGREE_ROWS_DTYPE)
    mine[context.task_index] = facts
    everyone = exchange(tf, workers, mine)
    if (everyone != everyone[0]).any():
        raise ThemisError(
            "the tasks of the job do not start from the same state",
            value=everyone.tolist(),
            remedy="give all of them the same flags and the same checkpoint folder",
        )


def exchange(tf: Any, workers: Workers, values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return the sum of float64 `values` over all tasks. Raises PeerLostError if a peer has died."""
    try:
        summed = _traced_sum(tf, workers)(tf.constant(values.ravel(), tf.float64))
        return np.asarray(summed.numpy()).reshape(values.shape)
    except tf.errors.OpError as error:
        raise peer_lost(error) from error


@cache
def _traced_sum(tf: Any, workers: Workers) -> Callable[[Any], Any]:
    """Build the sum of a float64 vector over all tasks. Traced once: TensorFlow warns if each fit traces its own."""
    signature = [tf.TensorSpec([None], tf.float64)]
    traced: Callable[[Any], Any] = tf.function(
        lambda row: workers.run(workers.total, row), input_signature=signature, autograph=False
    )
    return traced


def meet(tf: Any, workers: Workers) -> None:
    """Wait until all tasks have called this. Raises PeerLostError if one has died."""
    exchange(tf, workers, np.zeros(1))


def peer_lost(error: Exception) -> PeerLostError:
    """Turn the error of a failed collective into ours, with the one line of TensorFlow's text that gives the reason."""
    reasons = [line for line in str(error).splitlines() if line.startswith("Collective ops")]
    reason = reasons[0] if reasons else type(error).__name__
    return PeerLostError("a collective with the other tasks failed", value=reason, remedy="restart the job")
