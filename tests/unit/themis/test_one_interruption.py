"""The first signal ends the work; none after it disturbs the cleaning up."""

import importlib
import os
import signal
import subprocess
import sys
import threading
import time

import pytest
from documents import ROOT

from themis.interruption import OneInterruption, undisturbed_imports

NUMBERS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@pytest.fixture
def heeded():
    """Reset signals that a parent may ignore: nohup ignores SIGHUP, which `OneInterruption` keeps."""
    former = {number: signal.signal(number, signal.SIG_DFL) for number in NUMBERS}
    yield
    for number, handler in former.items():
        signal.signal(number, handler)


@pytest.mark.usefixtures("heeded")
@pytest.mark.parametrize("number", NUMBERS)
def test_the_first_signal_interrupts_and_later_ones_do_nothing(number):
    former = [signal.getsignal(each) for each in NUMBERS]
    with OneInterruption():
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), number)
        for each in NUMBERS:
            os.kill(os.getpid(), each)
    assert [signal.getsignal(each) for each in NUMBERS] == former


@pytest.mark.usefixtures("heeded")
def test_behind_the_shield_not_even_the_first_does():
    with OneInterruption() as interruption:
        interruption.shield()
        os.kill(os.getpid(), signal.SIGINT)


@pytest.mark.usefixtures("heeded")
def test_a_nested_interruption_counts_as_the_first():
    with OneInterruption():
        with pytest.raises(KeyboardInterrupt), OneInterruption((signal.SIGINT,)):
            os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)


@pytest.mark.usefixtures("heeded")
def test_held_the_first_waits_until_the_end():
    done = []
    with OneInterruption() as interruption, pytest.raises(KeyboardInterrupt), interruption.held():
        os.kill(os.getpid(), signal.SIGINT)
        done.append("more")
    assert done == ["more"]


def test_ignored_signals_stay_ignored():
    former = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with OneInterruption():
            os.kill(os.getpid(), signal.SIGHUP)
    finally:
        signal.signal(signal.SIGHUP, former)


def test_in_another_thread_nothing_changes():
    seen = []

    def enter():
        with OneInterruption():
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    assert seen == [signal.getsignal(signal.SIGINT)]


DEAF = """
import sys
from themis.interruption import dealt_with

try:
    exec("raise KeyboardInterrupt")
except KeyboardInterrupt:
    {caught}
sys.exit(3)
"""


@pytest.mark.parametrize(("caught", "ended_by"), [("pass", -signal.SIGINT), ("dealt_with()", 3)])
def test_an_interrupt_within_text_output_keeps_the_exit_code(tmp_path, caught, ended_by):
    (tmp_path / "interrupted.py").write_text(DEAF.format(caught=caught))
    path = os.pathsep.join([str(tmp_path), str(ROOT)])
    ended = subprocess.run([sys.executable, "-m", "interrupted"], env=os.environ | {"PYTHONPATH": path}, check=False)
    assert ended.returncode == ended_by


SLOW = """
import os, signal
os.kill(os.getpid(), signal.SIGINT)
sum(range(1_000_000))
MADE = True
"""


@pytest.mark.usefixtures("heeded")
@pytest.mark.parametrize("entered", [undisturbed_imports, OneInterruption])
def test_interrupt_during_an_import_waits_for_its_end(entered, tmp_path, monkeypatch):
    signal.signal(signal.SIGINT, signal.default_int_handler)
    (tmp_path / "interrupted_import.py").write_text(SLOW)
    monkeypatch.syspath_prepend(tmp_path)
    with entered(), pytest.raises(KeyboardInterrupt):
        module = importlib.import_module("interrupted_import")
        assert module.MADE
        time.sleep(30)
    assert sys.modules.pop("interrupted_import").MADE
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.usefixtures("heeded")
@pytest.mark.parametrize("entered", [undisturbed_imports, OneInterruption])
def test_interrupt_during_an_import_at_the_end_is_not_lost(entered, tmp_path, monkeypatch):
    signal.signal(signal.SIGINT, signal.default_int_handler)
    (tmp_path / "interrupted_import.py").write_text(SLOW.replace("1_000_000", "10"))
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(KeyboardInterrupt), entered():
        importlib.import_module("interrupted_import")
    assert sys.modules.pop("interrupted_import").MADE


@pytest.mark.usefixtures("heeded")
def test_interrupt_outside_imports_comes_at_once():
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with undisturbed_imports(), pytest.raises(KeyboardInterrupt):
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(30)


@pytest.mark.usefixtures("heeded")
def test_imports_leave_another_handler_as_it_is():
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with undisturbed_imports():
        os.kill(os.getpid(), signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
