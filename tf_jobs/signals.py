"""SIGTERM as a request to stop: at once during start-up, after a checkpoint during training.

Our programs block the signal, and a thread of its own awaits it. A handler would not do: Python runs handlers in the
main thread between bytecodes, which may be minutes away while that thread waits in a collective, and TensorFlow's
coordination service installs a SIGTERM handler of its own. In a script of someone else's, libraries may have started
threads that block nothing before we come to it: there a handler is all that is left, with a thread that hears of it.
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

    def training_ended(self) -> None:
        """From now on a request ends the process again: all is saved."""
        with self._lock:
            self._training = False

    def requested(self) -> bool:
        """Whether a stop has been asked for."""
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
    """The same by handlers, for processes whose threads do not block the signals; the main thread makes it."""

    def __init__(self) -> None:
        super().__init__()
        self._told, self._tell = os.pipe()
        os.set_blocking(self._tell, False)

    def listen(self) -> None:
        """Take the signals over, from now on."""
        self.take_over()
        threading.Thread(target=self._wait, name="stop-signals", daemon=True).start()

    def take_over(self) -> None:
        """Put our handlers in place of whichever a library has put there meanwhile."""
        for number in STOP_SIGNALS:
            signal.signal(number, _heard)
        signal.set_wakeup_fd(self._tell, warn_on_full_buffer=False)

    def _wait(self) -> None:
        while True:
            if any(number in STOP_SIGNALS for number in os.read(self._told, 64)):
                self._asked()


def _heard(_number: int, _frame: object) -> None:
    """Nothing is left to do: the interpreter has written the signal's number to the pipe already."""
