"""The time that each step of a gang's containers took."""

from am.runtimes.remote.startup_timing import StartupTiming


class Clock:
    def __init__(self):
        self.s = 100.0

    def now_s(self):
        return self.s


def test_step_ends_with_its_last_container():
    clock = Clock()
    timing = StartupTiming(clock.now_s)
    for at_s, step in [(1.0, "ask"), (2.0, "ask"), (2.5, "grant"), (4.0, "grant"), (4.5, "start"), (6.0, "connect")]:
        clock.s = 100.0 + at_s
        timing.step_done(step)
    assert list(timing.seconds().items()) == [("ask", 2.0), ("grant", 2.0), ("start", 0.5), ("connect", 1.5)]


def test_overlapping_steps_count_once():
    clock = Clock()
    timing = StartupTiming(clock.now_s)
    for at_s, step in [(1.0, "ask"), (2.0, "grant"), (3.0, "ask"), (5.0, "start")]:
        clock.s = 100.0 + at_s
        timing.step_done(step)
    assert timing.seconds() == {"ask": 3.0, "grant": 0.0, "start": 2.0}


def test_no_steps_give_no_seconds():
    assert StartupTiming(Clock().now_s).seconds() == {}
