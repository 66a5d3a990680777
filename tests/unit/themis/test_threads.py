"""Threads of one part: how many calls run at a time, and what happens at the end of the part or the process."""

import asyncio
import subprocess
import sys
import threading
import time
from queue import SimpleQueue

import pytest

from themis.threads import Threads


def refuse_to_start(_thread):
    raise RuntimeError("can't start new thread")


def run(scenario):
    return asyncio.run(asyncio.wait_for(scenario(), 20))


class Held:
    """A call that lasts until `go` is set. `begun` has an entry for each that has begun."""

    def __init__(self):
        self.go, self.begun = threading.Event(), []

    def call(self):
        self.begun.append(threading.current_thread())
        return self.go.wait()

    async def until_begun(self, count):
        while len(self.begun) < count:
            await asyncio.sleep(0.001)


def names(part):
    return [thread.name for thread in threading.enumerate() if thread.name.startswith(part)]


def test_result_and_error_of_a_call_reach_the_caller():
    async def scenario():
        threads = Threads("results", 2)
        assert await threads.run(divmod, 7, 2) == (3, 1)
        assert await threads.run(sorted, "ba", reverse=True) == ["b", "a"]
        with pytest.raises(ZeroDivisionError):
            await threads.run(divmod, 7, 0)
        threads.close()

    run(scenario)


def test_at_most_so_many_calls_run_at_a_time():
    async def scenario():
        threads, go, running, most = Threads("bounded", 2), threading.Event(), [], []

        def call():
            running.append(None)
            most.append(len(running))
            go.wait()
            running.pop()

        calls = [asyncio.ensure_future(threads.run(call)) for _ in range(5)]
        while len(running) < 2:
            await asyncio.sleep(0.001)
        assert len(names("bounded")) == 2
        go.set()
        await asyncio.gather(*calls)
        assert (len(most), max(most)) == (5, 2)
        threads.close()

    run(scenario)


def test_call_that_is_cancelled_before_a_thread_is_free_is_not_made():
    async def scenario():
        threads, held, made = Threads("cancelled", 1), Held(), []
        first = asyncio.ensure_future(threads.run(held.call))
        second = asyncio.ensure_future(threads.run(made.append, 2))
        await held.until_begun(1)
        second.cancel()
        await asyncio.gather(second, return_exceptions=True)
        held.go.set()
        await first
        await threads.run(made.append, 3)
        assert made == [3]
        threads.close()

    run(scenario)


def test_close_ends_idle_threads_cancels_waiting_calls_and_waits_for_no_call():
    async def scenario():
        threads, held = Threads("closing", 2), Held()
        hung = [asyncio.ensure_future(threads.run(held.call)) for _ in range(2)]
        waiting = asyncio.ensure_future(threads.run(time.sleep, 0))
        await held.until_begun(2)
        threads.close()
        threads.close()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        with pytest.raises(RuntimeError, match="closed"):
            await threads.run(time.sleep, 0)
        held.go.set()
        assert await asyncio.gather(*hung) == [True, True]
        while names("closing"):
            await asyncio.sleep(0.001)

    run(scenario)


def test_call_for_which_no_thread_starts_is_not_made_and_the_next_one_is(monkeypatch):
    async def scenario():
        threads, made = Threads("scarce", 1), []
        with monkeypatch.context() as patched:
            patched.setattr(threading.Thread, "start", refuse_to_start)
            with pytest.raises(RuntimeError, match="can't start new thread"):
                await threads.run(made.append, 1)
        await threads.run(made.append, 2)
        assert made == [2]
        threads.close()

    run(scenario)


def test_process_ends_during_a_call_that_never_returns():
    program = """
import asyncio, threading
from themis.threads import Threads

async def main():
    threads = Threads("hung", 1)
    call = asyncio.ensure_future(threads.run(threading.Event().wait))
    await asyncio.sleep(0.05)
    threads.close()
    call.cancel()

asyncio.run(main())
print("over")
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "over\n", "")


def test_close_does_not_wait_for_a_call_that_a_thread_takes_meanwhile():
    class Taken(SimpleQueue):
        def empty(self):
            """Say what was true before a thread took the last call."""
            return False

    async def scenario():
        threads = Threads("taken", 1)
        threads._calls = Taken()
        assert await threads.run(divmod, 7, 2) == (3, 1)
        closing = threading.Thread(target=threads.close, daemon=True)
        closing.start()
        await asyncio.to_thread(closing.join, 5)
        assert not closing.is_alive()

    run(scenario)
