"""SIGTERM as a request to stop: at once during start-up, after a checkpoint during training.

Our programs block the signal, and a dedicated thread waits for it. A handler is not enough: Python runs handlers in the
main thread between bytecodes, which may be minutes away while that thread waits in a collective. Also, TensorFlow's
coordination service installs a SIGTERM handler of its own. In a user's script, libraries may have started threads that
do not block signals before our code runs. There only a handler remains, with a thread that it wakes up.
"""

from __future__ import annotations

import os
import signal
import threading

from tf_jobs.exit_codes import EXIT_CHECKPOINTED

STOP_SIGNALS = frozenset({signal.SIGTERM, signal.SIGINT})


def block_stop_signals() -> None:
    """Block stop signals until a thread waits for them. Call it before any thread starts."""
    signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)


class StopRequest:
    """Whether this task was asked to stop. SIGINT counts too, for runs by hand."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._training = False
        self._requested = False

    def listen(self) -> None:
        """Start to wait for the signals. Call it before TensorFlow is imported."""
        block_stop_signals()
        threading.Thread(target=self._wait, name="stop-signals", daemon=True).start()

    def training_begins(self) -> None:
        """From now on, only note a request. Before, it ended the process, since there was nothing to save."""
        with self._lock:
            self._training = True

    def training_ended(self) -> None:
        """From now on, let a request end the process again: all is saved."""
        with self._lock:
            self._training = False

    def requested(self) -> bool:
        """Whether a stop was requested."""
        return self._requested

    def _wait(self) -> None:
        while True:
            signal.sigwait(STOP_SIGNALS)
            self._asked()

    def _asked(self) -> None:
        with self._lock:
            if not self._training:
                os._exit(EXIT_CHECKPOINTED)
            self._requested = True


class HandledStop(StopRequest):
    """A `StopRequest` with handlers, for processes whose threads do not block the signals. Made in the main thread."""

    def __init__(self) -> None:
        super().__init__()
        self._wake_read, self._wake_write = os.pipe()
        os.set_blocking(self._wake_write, False)

    def listen(self) -> None:
        """Install the handlers."""
        self.take_over()
        threading.Thread(target=self._wait, name="stop-signals", daemon=True).start()

    def take_over(self) -> None:
        """Install our handlers again, over those that a library has set meanwhile."""
        for number in STOP_SIGNALS:
            signal.signal(number, _ignored)
        signal.set_wakeup_fd(self._wake_write, warn_on_full_buffer=False)

    def _wait(self) -> None:
        while True:
            if any(number in STOP_SIGNALS for number in os.read(self._wake_read, 64)):
                self._asked()


def _ignored(_number: int, _frame: object) -> None:
    """Do nothing: the interpreter has already written the signal's number to the pipe."""
