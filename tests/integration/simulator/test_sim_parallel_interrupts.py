"""Interrupts while runs are made in processes of their own."""

import os
import signal
import threading
import time

import pytest

from simulator import parallel


def interrupt():
    os.kill(os.getpid(), signal.SIGINT)


@pytest.fixture
def heeded():
    """Interrupts raise KeyboardInterrupt, also where whoever started the tests ignores them."""
    former = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, former)


@pytest.mark.usefixtures("heeded")
def test_a_second_interrupt_does_not_disturb_the_end_of_the_processes(monkeypatch):
    end, ended = parallel._end, []

    def end_interrupted(pool):
        interrupt()
        workers = list(pool._processes.values())
        end(pool)
        ended.extend(worker.exitcode for worker in workers)

    monkeypatch.setattr(parallel, "_end", end_interrupted)
    first = threading.Timer(1.0, interrupt)
    first.start()
    with pytest.raises(KeyboardInterrupt):
        list(parallel.mapped(time.sleep, [(0, 60.0), (1, 60.0)], 2))
    first.join()
    assert len(ended) == 2
    assert None not in ended
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
