"""Ctrl-C and its relatives: the first ends what is going on, and none disturbs the cleaning up after it."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Self

_ALL = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class OneInterruption:
    """While entered, the first of some signals raises KeyboardInterrupt; later ones do nothing.

    Signals that are ignored stay so (nohup, jobs in the background). What one takes within another is
    the first of both. Outside the main thread it has no effect.

    Args:
        numbers: The signals; by default SIGINT, SIGTERM and SIGHUP.
    """

    def __init__(self, numbers: Iterable[signal.Signals] = _ALL) -> None:
        self._numbers = tuple(numbers)
        self._over = False
        self._held = False
        self._waits = False
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
        for number, former in self._former.items():
            signal.signal(number, former)  # type: ignore[arg-type]

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

    def _take(self, *_: object) -> None:
        if self._held:
            self._waits = True
        elif not self._over:
            self._over = True
            if self._outer is not None:
                self._outer.shield()
            raise KeyboardInterrupt


def dealt_with() -> None:
    """Call it where a KeyboardInterrupt has been caught and the process ends with a code of its own.

    Python notes one that passes through `exec` of a text (as of named tuples, while modules load), and would end a
    process of `python -m` by SIGINT for it, whatever its code; the next text takes that note away.
    """
    eval("0")
