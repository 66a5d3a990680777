"""End a task that waits for a dead peer: a collective might otherwise wait for ever."""

from __future__ import annotations

import os
import sys
import threading
import time

from tf_jobs.exit_codes import EXIT_FAILED

POLL_S = 0.5
STARTUP_LIMIT_S = 180.0


class Watchdog:
    """A thread that ends the process unless `beat` is called in time.

    Args:
        limit_s: The first limit in seconds, for start-up: peers may still be loading.
        what: What the task waits for, for the message.
    """

    def __init__(self, limit_s: float, what: str) -> None:
        self._limit_s = limit_s
        self._what = what
        self._beaten_s = time.monotonic()

    def start(self) -> None:
        """Start to watch."""
        threading.Thread(target=self._watch, name="watchdog", daemon=True).start()

    def beat(self, limit_s: float, what: str) -> None:
        """Restart the timer; the next beat is due within `limit_s` seconds."""
        self._limit_s, self._what, self._beaten_s = limit_s, what, time.monotonic()

    def _watch(self) -> None:
        while time.monotonic() - self._beaten_s < self._limit_s:
            time.sleep(POLL_S)
        sys.stderr.write(f"ERROR:themis:no sign of the other tasks for {self._limit_s:g} s while {self._what}\n")
        sys.stderr.flush()
        os._exit(EXIT_FAILED)


def begin_watch(tasks: int) -> Watchdog:
    """Return the watchdog of a task that starts to wait for its peers. Without peers it does not watch."""
    watchdog = Watchdog(STARTUP_LIMIT_S, "starting")
    if tasks > 1:
        watchdog.start()
    return watchdog
