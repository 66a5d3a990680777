"""What ends a task from outside: stop signals, and a watchdog that waited without success."""

import signal
import subprocess
import sys

import pytest

LISTEN = """
import signal, threading, time
from tf_jobs.signals import HandledStop, StopRequest
threading.Thread(target=time.sleep, args=(60,), daemon=True).start() if {handled} else None
stop = HandledStop() if {handled} else StopRequest()
stop.listen()
{training}
print("up", flush=True)
while not stop.requested():
    time.sleep(0.005)
print("asked", flush=True)
"""


@pytest.fixture(params=[False, True], ids=["blocked", "handled"])
def handled(request):
    """Whether handlers receive stops. A thread that blocks no signals was started first."""
    return request.param


def listen(training: str, handled: bool) -> subprocess.Popen:
    script = LISTEN.format(training=training, handled=handled)
    task = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert task.stdout.readline() == "up\n"
    return task


def test_a_stop_before_training_ends_the_process(handled):
    task = listen("", handled)
    task.send_signal(signal.SIGTERM)
    assert task.communicate(timeout=60)[0] == ""
    assert task.returncode == 75


def test_a_stop_after_training_ends_the_process(handled):
    task = listen("stop.training_begins(); stop.training_ended()", handled)
    task.send_signal(signal.SIGTERM)
    assert task.communicate(timeout=60)[0] == ""
    assert task.returncode == 75


def test_a_replaced_signal_handler_is_restored():
    training = "stop.training_begins(); signal.signal(signal.SIGTERM, signal.SIG_DFL); stop.take_over()"
    task = listen(training, True)
    task.send_signal(signal.SIGTERM)
    assert task.communicate(timeout=60)[0] == "asked\n"


def test_a_stop_in_training_is_only_noted(handled):
    task = listen("stop.training_begins()", handled)
    task.send_signal(signal.SIGTERM)
    assert task.communicate(timeout=60)[0] == "asked\n"
    assert task.returncode == 0


def test_a_watchdog_ends_a_process_that_is_stuck():
    code = (
        "import time; from tf_jobs import watchdog; watchdog.POLL_S = 0.01; "
        "dog = watchdog.Watchdog(90.0, 'starting'); dog.start(); dog.beat(0.05, 'parting'); time.sleep(90)"
    )
    ended = subprocess.run([sys.executable, "-c", code], stderr=subprocess.PIPE, text=True, timeout=60)
    assert ended.returncode == 1
    assert ended.stderr == "ERROR:themis:no sign of the other tasks for 0.05 s while parting\n"
