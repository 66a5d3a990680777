"""SIGTERM as a request to stop: at once during start-up, after a checkpoint during training.

The signal is blocked and awaited by a thread of its own. A handler would not do: Python runs handlers in the main
thread between bytecodes, which may be minutes away while that thread waits in a collective, and TensorFlow's
coordination service installs a SIGTERM handler of its own.
"""

from __future__ import annotations

import os
import signal
import threading

from tf_jobs.exit_codes import EXIT_CHECKPOINTED

STOP_SIGNALS = frozenset({signal.SIGTERM, signal.SIGINT})


def block_stop_signals() -> None:
    """Hold stop signals back until someone waits for them; call it before any thread starts."""
    signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)


class StopRequest:
    """Whether this task has been asked to stop; SIGINT counts as well, for runs by hand."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._training = False
        self._requested = False

    def listen(self) -> None:
        """Start to wait for the signals; call it before TensorFlow is imported."""
        block_stop_signals()
        threading.Thread(target=self._wait, name="stop-signals", daemon=True).start()

    def training_begins(self) -> None:
        """From now on a request is only noted; until now it ended the process, as there was nothing to save."""
        with self._lock:
            self._training = True

    def requested(self) -> bool:
        """Whether a stop has been asked for."""
        return self._requested

    def _wait(self) -> None:
        while True:
            signal.sigwait(STOP_SIGNALS)
            with self._lock:
                if not self._training:
                    os._exit(EXIT_CHECKPOINTED)
                self._requested = True
