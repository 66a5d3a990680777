"""Interrupts, kills and progress while runs are made in processes of their own."""

import os
import signal
import subprocess
import sys
import time

import psutil
import pytest
from documents import ROOT

from themis.errors import ThemisError
from themis_lab.simulator import parallel


def interrupt():
    os.kill(os.getpid(), signal.SIGINT)


@pytest.fixture
def heeded():
    """Let interrupts raise KeyboardInterrupt, even if the parent of the tests ignores them."""
    former = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, former)


def put_and_wait(place):
    parallel.Board.here.put(place, 10 + place)
    time.sleep(60.0)


@pytest.mark.usefixtures("heeded")
def test_a_second_interrupt_does_not_disturb_the_end_of_the_processes(monkeypatch):
    end, ended = parallel._end, []

    def end_interrupted(pool):
        interrupt()
        workers = list(pool._processes.values())
        end(pool)
        ended.extend(worker.exitcode for worker in workers)

    monkeypatch.setattr(parallel, "_end", end_interrupted)
    board = parallel.Board(2)

    def look():
        if sum(board.numbers()) == 21:
            interrupt()

    with pytest.raises(KeyboardInterrupt):
        list(parallel.run_parallel(put_and_wait, [(0, 0), (1, 1)], 2, board, look))
    assert len(ended) == 2
    assert None not in ended
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def put_and_be_killed(place):
    parallel.Board.here.put(place, 10 + place)
    os.kill(os.getpid(), signal.SIGKILL)


class SeenError(Exception):
    pass


def test_progress_is_visible_before_the_first_process_ends():
    board = parallel.Board(2)

    def look():
        if sum(board.numbers()) == 21:
            raise SeenError

    with pytest.raises(SeenError):
        list(parallel.run_parallel(put_and_wait, [(0, 0), (1, 1)], 2, board, look))


def test_a_killed_process_ends_all_and_its_numbers_stay():
    board = parallel.Board(1)
    with pytest.raises(ThemisError, match="a process that makes runs was killed"):
        list(parallel.run_parallel(put_and_be_killed, [(0, 0)], 2, board))
    assert sum(board.numbers()) == 10


def test_an_interrupt_during_process_start_prints_one_line():
    command = [*(sys.executable, "-m", "themis_cli", "simulate", "--policy", "themis", "--cluster", "testbed")]
    command += ["--workload", "w1", "--seeds", "2", "--jobs", "2"]
    started = subprocess.Popen(command, cwd=ROOT, start_new_session=True, stderr=subprocess.PIPE, text=True)
    own = psutil.Process(started.pid)
    deadline_s = time.monotonic() + 60
    while not any("forkserver" in " ".join(child.cmdline()) for child in own.children()):
        assert time.monotonic() < deadline_s, "no process was begun"
        time.sleep(0.01)
    time.sleep(0.15)
    os.killpg(started.pid, signal.SIGINT)
    _, output = started.communicate(timeout=60)
    assert (started.returncode, output) == (3, "themis: interrupted\n")
