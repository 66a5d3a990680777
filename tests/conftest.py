"""What all tests share: one Hypothesis profile, the same examples on every machine, and a Ctrl-C that works."""

import signal

from hypothesis import HealthCheck, settings

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
