"""How a replay task sleeps: woken early by a stop request, and failing on a dead peer."""

from __future__ import annotations

import signal
import time

from tf_jobs.context import TaskContext
from tf_jobs.peers import Peers
from tf_jobs.signals import STOP_SIGNALS
from themis.errors import ThemisError

PEER_POLL_S = 0.25
START_POLL_S = 0.05
START_LIMIT_S = 60.0


class StopAsked(Exception):  # noqa: N818 - a request, not an error
    """This task, or one of its peers, has been asked to stop."""


class Waiting:
    """Sleeps that end early on a stop request and fail on a dead peer.

    Args:
        context: This task's context.
    """

    def __init__(self, context: TaskContext) -> None:
        self.peers = Peers(context)
        self._context = context
        self._alone = context.tasks == 1
        self._begun_s = time.monotonic()
        if not self._alone:
            self.peers.announce()

    def for_peers(self) -> None:
        """Wait until all tasks have come up; raises StopAsked, or ThemisError after START_LIMIT_S seconds."""
        while not self._alone and not self.peers.all_announced():
            self._nap(START_POLL_S)
            self._check_start_limit()

    def for_end(self) -> None:
        """Sleep one poll of a follower; raises StopAsked, or ThemisError where the chief is gone or never came."""
        self._nap(PEER_POLL_S)
        if not self.peers.all_announced():
            self._check_start_limit()
        dead = self.peers.dead()
        if dead is not None and self.peers.end_code() is None:
            raise ThemisError("another task of the job died", value=dead, remedy="restart the job")

    def until(self, deadline_s: float) -> None:
        """Sleep until the monotonic clock shows `deadline_s`; raises StopAsked, or ThemisError for a dead peer."""
        while (left_s := deadline_s - time.monotonic()) > 0.0:
            self._nap(left_s if self._alone else min(left_s, PEER_POLL_S))
            self._check_peers()
        # A stop that came while the last point was logged is taken here, even when the clock is behind.
        self._nap(0.0)

    def ended(self, code: int) -> int:
        """Tell the peers the job's exit code, and return it."""
        if not self._alone:
            self.peers.publish_end(code)
        return code

    def _check_start_limit(self) -> None:
        if time.monotonic() - self._begun_s > START_LIMIT_S:
            raise ThemisError(
                f"not all tasks of the job came up within {START_LIMIT_S:g} s",
                value=self._context.job_id,
                remedy="start all of them with the same THEMIS_INCARNATION and THEMIS_JOB_DIR",
            )

    def _check_peers(self) -> None:
        if self._alone:
            return
        if self.peers.stop_asked():
            raise StopAsked
        dead = self.peers.dead()
        if dead is not None:
            raise ThemisError("another task of the job died", value=dead, remedy="restart the job")

    @staticmethod
    def _nap(seconds: float) -> None:
        if signal.sigtimedwait(STOP_SIGNALS, seconds) is not None:
            raise StopAsked
