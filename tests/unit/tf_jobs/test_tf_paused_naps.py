"""A task that the system pauses for a while (SIGSTOP, SIGCONT) was not asked to stop."""

import signal
import subprocess
import sys
import time

NAPS = """
from tf_jobs.signals import block_stop_signals
from tf_jobs.waiting import nap
block_stop_signals()
print("up", flush=True)
nap(0.5)
print("went on", flush=True)
"""


def test_nap_that_ends_while_the_task_is_paused_is_no_stop():
    with subprocess.Popen([sys.executable, "-c", NAPS], stdout=subprocess.PIPE, text=True) as task:
        assert task.stdout.readline() == "up\n"
        # It is in its nap by then.
        time.sleep(0.2)
        task.send_signal(signal.SIGSTOP)
        time.sleep(0.7)
        task.send_signal(signal.SIGCONT)
        assert task.stdout.readline() == "went on\n"
    assert task.returncode == 0
