"""The sleeps of a replay task, which end early on a stop request and fail if a peer dies."""

from __future__ import annotations

import signal
import time

from tf_jobs.context import TaskContext
from tf_jobs.peers import Chief
from tf_jobs.signals import STOP_SIGNALS
from themis.errors import ThemisError

PEER_POLL_S = 0.25
START_POLL_S = 0.05
START_LIMIT_S = 180.0
"""Seconds between the start of a job's first and last task: a machine may have to fetch an image first."""


class StopAsked(Exception):  # noqa: N818 - a request, not an error
    """This task or one of its peers was asked to stop."""


class Waiting:
    """The chief's sleeps, which end early on a stop request and fail if a peer dies.

    Args:
        context: The chief's context.

    Raises:
        ThemisError: The chief has peers and cannot listen on its address.
    """

    def __init__(self, context: TaskContext) -> None:
        self._begun_s = time.monotonic()
        self._peers = Chief(context) if context.tasks > 1 else None

    def for_peers(self) -> None:
        """Wait until all tasks are connected.

        Raises:
            StopAsked: Any of them was asked to stop.
            ThemisError: A task died, or is still missing after START_LIMIT_S seconds.
        """
        while self._peers and (missing := self._peers.missing()):
            nap(START_POLL_S)
            self._check_peers()
            if time.monotonic() - self._begun_s > START_LIMIT_S:
                raise ThemisError(
                    f"not all tasks of the job came up within {START_LIMIT_S:g} s",
                    value=missing,
                    remedy="start all of them with the same THEMIS_INCARNATION and TF_CONFIG",
                )

    def until(self, deadline_s: float) -> None:
        """Sleep until the monotonic clock shows `deadline_s`. Raises StopAsked, or ThemisError if a peer died."""
        while (left_s := deadline_s - time.monotonic()) > 0.0:
            nap(min(left_s, PEER_POLL_S) if self._peers else left_s)
            self._check_peers()
        # Notice a stop that came while the last point was logged, even if no sleep is left.
        nap(0.0)
        self._check_peers()

    def ended(self, code: int) -> int:
        """Send the job's exit code to the peers, and return it."""
        if self._peers:
            self._peers.publish_end(code)
        return code

    def close(self) -> None:
        """Close the connections to the peers."""
        if self._peers:
            self._peers.close()

    def _check_peers(self) -> None:
        if self._peers is None:
            return
        self._peers.poll()
        if self._peers.stop_asked:
            raise StopAsked
        if self._peers.dead is not None:
            raise peer_died(self._peers.dead)


def nap(seconds: float) -> None:
    """Sleep, or raise StopAsked as soon as this task is asked to stop."""
    asked = signal.sigtimedwait(STOP_SIGNALS, seconds)
    # If the time is over when a pause of the process ends (SIGSTOP, SIGCONT), Python 3.11 returns no signal, but not
    # None either: a result that nothing was written to.
    if asked is not None and asked.si_signo in STOP_SIGNALS:
        raise StopAsked


def peer_died(task_index: int) -> ThemisError:
    """Return the error of a task whose peer has died."""
    return ThemisError("another task of the job died", value=task_index, remedy="restart the job")
