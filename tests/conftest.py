"""What all tests share: one Hypothesis profile, a Ctrl-C that works, and a process that each leaves as it found it."""

import os
import resource
import signal
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from themis.sessions import adopts_orphans

# No examples fail for how long they take: that depends on what else the machine does.
settings.register_profile(
    "themis",
    derandomize=True,
    max_examples=40,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("themis")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell starts what it runs in the background with SIGINT ignored, and children inherit that: tests of Ctrl-C
    # would wait for ever. A handler of our own is not inherited.
    signal.signal(signal.SIGINT, signal.default_int_handler)

_INHERITED = frozenset(os.environ)
_HANDLED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGCHLD)


@pytest.fixture(autouse=True)
def process_is_left_as_found():
    """Services run inside tests too. What one leaves of itself decides the result of some later test, or of none."""
    before = _process_state()
    yield
    assert _process_state() == before


def _process_state():
    status = Path("/proc/self/status").read_text().splitlines()
    return {
        # Libraries, and commands that run in the tests' process, may set what only they read.
        "environment": {
            name: value
            for name, value in os.environ.items()
            if name.startswith("THEMIS_") or (name in _INHERITED and name != "PYTEST_CURRENT_TEST")
        },
        "umask": next(line for line in status if line.startswith("Umask")),
        "working directory": Path.cwd(),
        "adopts orphans": adopts_orphans(),
        "signal handlers": [signal.getsignal(number) for number in _HANDLED],
        "niceness": os.nice(0),
        "open files": resource.getrlimit(resource.RLIMIT_NOFILE),
    }
