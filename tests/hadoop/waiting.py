"""Waiting for something to come true, for tests."""

import time


def wait_until(condition, limit_s=60):
    """The first true value of a function without arguments; fails when there is none in time."""
    deadline_s = time.monotonic() + limit_s
    while not (value := condition()):
        assert time.monotonic() < deadline_s, "it does not come to be"
        time.sleep(0.1)
    return value
