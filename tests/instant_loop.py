"""An event loop that waits for nothing: a test in it gives the same result on a busy machine."""

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor


class _NeverWaiting(selectors.DefaultSelector):
    """Its time jumps to the next timer instead of waiting for it."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 0.0

    def select(self, timeout: float | None = None):
        ready = super().select(0)
        if not ready and timeout is not None:
            self.now_s += timeout
        return ready


class _InstantLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._timers = _NeverWaiting()
        super().__init__(self._timers)

    def time(self) -> float:
        return self._timers.now_s

    def run_in_executor(self, executor: Executor | None, func: Callable[..., object], *args: object):
        """Run it at once and in this thread: how long a thread takes must not decide what happens."""
        done = self.create_future()
        try:
            done.set_result(func(*args))
        except Exception as error:
            done.set_exception(error)
        return done


def run_instantly(main: Coroutine) -> object:
    """Run as `asyncio.run` does, with no thread and in no time."""
    with asyncio.Runner(loop_factory=_InstantLoop) as runner:
        return runner.run(main)
