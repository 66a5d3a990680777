"""How the tasks of one job add up numbers: alone, or through TensorFlow's multi-worker collectives."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, Protocol

import numpy as np

from tf_jobs.context import TaskContext
from themis.errors import ThemisError

AGREE_ROWS_DTYPE = np.float64


class PeerLostError(ThemisError, ConnectionError):
    """Another task of the job is gone, so a collective failed."""


class Workers(Protocol):
    """The tasks of one job, as each of them sees them."""

    def run(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Run `function` as this task's part of a joint step; call it while tracing."""
        ...

    def total(self, tensor: Any) -> Any:
        """The sum of `tensor` over all tasks; call it within `run`."""
        ...

    def __hash__(self) -> int:
        """By identity: what is traced for some tasks is kept for them."""
        ...


class Alone:
    """A job of one task: it is its own sum."""

    def run(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Just call it."""
        return function(*arguments)

    def total(self, tensor: Any) -> Any:
        """Just return it."""
        return tensor


class MirroredWorkers:
    """One process a task, joined by `tf.distribute.MultiWorkerMirroredStrategy` as TF_CONFIG says.

    Only the strategy's collectives are used. Each task keeps variables of its own, which stay equal because all start
    equal and see the same sums; that way any task can evaluate and save without its peers.
    """

    def __init__(self, tf: Any) -> None:
        self._tf = tf
        self._strategy = tf.distribute.MultiWorkerMirroredStrategy()

    def run(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Run it in the strategy's replica context; a task is one replica."""
        return self._strategy.run(function, args=arguments)

    def total(self, tensor: Any) -> Any:
        """All-reduce by sum."""
        tf = self._tf
        # identity: an argument of the traced function has no device yet, and the collective asks for one.
        return tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.SUM, tf.identity(tensor))


def join_workers(tf: Any, context: TaskContext) -> Workers:
    """The workers of this job; waits for the peers where there are any."""
    return MirroredWorkers(tf) if context.tasks > 1 else Alone()


def agree(tf: Any, workers: Workers, context: TaskContext, facts: tuple[float, ...]) -> None:
    """Make sure that all tasks start from the same `facts`; also the first time that all have met.

    Raises:
        ThemisError: Some task has other facts, for instance has restored another checkpoint.
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
    """The sum of float64 `values` over all tasks, as an array; raises PeerLostError where a peer is gone."""
    try:
        summed = _traced_sum(tf, workers)(tf.constant(values.ravel(), tf.float64))
        return np.asarray(summed.numpy()).reshape(values.shape)
    except tf.errors.OpError as error:
        raise peer_lost(error) from error


@cache
def _traced_sum(tf: Any, workers: Workers) -> Callable[[Any], Any]:
    """The sum of a row of float64 over all tasks, traced once: TensorFlow warns where each fit traces its own."""
    signature = [tf.TensorSpec([None], tf.float64)]
    traced: Callable[[Any], Any] = tf.function(
        lambda row: workers.run(workers.total, row), input_signature=signature, autograph=False
    )
    return traced


def meet(tf: Any, workers: Workers) -> None:
    """Wait until all tasks have come here; raises PeerLostError where one is gone."""
    exchange(tf, workers, np.zeros(1))


def peer_lost(error: Exception) -> PeerLostError:
    """The error of a failed collective in our own terms: of TensorFlow's page of text, the one line that says why."""
    reasons = [line for line in str(error).splitlines() if line.startswith("Collective ops")]
    reason = reasons[0] if reasons else type(error).__name__
    return PeerLostError("a collective with the other tasks failed", value=reason, remedy="restart the job")
