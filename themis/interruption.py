"""Ctrl-C and its relatives: the first ends what is going on, and none disturbs the cleaning up after it."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Self

_ALL = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_AGAIN_S = 0.02
_IMPORT = "<frozen importlib._bootstrap"


class OneInterruption:
    """While entered, the first of some signals raises KeyboardInterrupt; later ones do nothing.

    All wait for the end of an import (`undisturbed_imports`). Signals that are ignored stay so (nohup, jobs in the
    background). What one takes within another is the first of both. Outside the main thread it has no effect.

    Args:
        numbers: The signals; by default SIGINT, SIGTERM and SIGHUP.
    """

    def __init__(self, numbers: Iterable[signal.Signals] = _ALL) -> None:
        self._numbers = tuple(numbers)
        self._over = False
        self._held = False
        self._waits = False
        self._later = _AfterImport()
        self._former: dict[signal.Signals, object] = {}
        self._outer: OneInterruption | None = None

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for number in self._numbers:
                if signal.getsignal(number) is not signal.SIG_IGN:
                    former = self._former[number] = signal.signal(number, self._take)
                    owner = getattr(former, "__self__", None)
                    self._outer = owner if isinstance(owner, OneInterruption) else self._outer
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        waits = self._later.close()
        for number, former in self._former.items():
            signal.signal(number, former)  # type: ignore[arg-type]
        if waits and kind is None:
            self._take()

    def shield(self) -> None:
        """From here on not even the first does anything."""
        self._over = True

    def ignore_for_good(self) -> None:
        """As `shield`, to the end of the process: Python takes its own handlers away before that is over."""
        for number in self._former:
            signal.signal(number, signal.SIG_IGN)
        self._former.clear()

    @contextmanager
    def held(self) -> Iterator[None]:
        """While entered the first waits; it raises at the end."""
        self._held = True
        try:
            yield
        finally:
            self._held = False
        if self._waits:
            self._take()

    def _take(self, number: int = signal.SIGINT, frame: FrameType | None = None) -> None:
        if self._held:
            self._waits = True
        elif self._later.takes(number, frame):
            return
        elif not self._over:
            self._over = True
            if self._outer is not None:
                self._outer.shield()
            raise KeyboardInterrupt


@contextmanager
def ended_by_ctrl_c() -> Iterator[None]:
    """While entered, Ctrl-C ends the process at once and without a traceback; a shell shows exit code 130.

    For the imports with which a command starts: nothing is to be cleaned up yet. With another handler than Python's,
    this has no effect.
    """
    is_usual = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if is_usual:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    yield
    if is_usual:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@contextmanager
def undisturbed_imports() -> Iterator[None]:
    """While entered, Ctrl-C raises KeyboardInterrupt as usual, but never while a module is imported.

    A module whose import is interrupted is half made. Later, pydantic raises errors of its own and msgspec crashes the
    process. Outside the main thread, or with another handler than Python's, this has no effect.
    """
    is_usual = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if not is_usual or threading.current_thread() is not threading.main_thread():
        yield
        return
    later = _AfterImport()

    def interrupt(number: int, frame: FrameType | None) -> None:
        if not later.takes(number, frame):
            raise KeyboardInterrupt

    signal.signal(signal.SIGINT, interrupt)
    try:
        yield
    finally:
        waits = later.close()
        signal.signal(signal.SIGINT, signal.default_int_handler)
        if waits:
            raise KeyboardInterrupt


class _AfterImport:
    """Sends a signal again that came during an import, once the import has ended."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._waits = False

    def takes(self, number: int, frame: FrameType | None) -> bool:
        """Whether a signal came during an import, by the frame that it interrupted. It comes again later."""
        if not _is_import(frame):
            return False
        if not self._waits:
            self._waits = True
            threading.Thread(target=self._send, args=(threading.get_ident(), number), daemon=True).start()
        return True

    def close(self) -> bool:
        """Send nothing any more. Returns whether a signal still waits."""
        with self._lock:
            self._closed.set()
            return self._waits

    def _send(self, thread: int, number: int) -> None:
        while _is_import(sys._current_frames().get(thread)):
            self._closed.wait(_AGAIN_S)
        with self._lock:
            if not self._closed.is_set():
                self._waits = False
                signal.pthread_kill(thread, number)


def _is_import(frame: FrameType | None) -> bool:
    while frame is not None and not frame.f_code.co_filename.startswith(_IMPORT):
        frame = frame.f_back
    return frame is not None


def dealt_with() -> None:
    """Call it where a KeyboardInterrupt has been caught and the process ends with a code of its own.

    Python notes one that passes through `exec` of a text (as of named tuples, while modules load), and would end a
    process of `python -m` by SIGINT for it, whatever its code; the next text takes that note away.
    """
    eval("0")
