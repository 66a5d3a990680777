"""The time that each step of a gang's containers took."""

from am.runtimes.remote.steps import Steps


class Clock:
    def __init__(self):
        self.s = 100.0

    def now_s(self):
        return self.s


def test_a_step_is_over_with_its_last_container():
    clock = Clock()
    steps = Steps(clock.now_s)
    for at_s, step in [(1.0, "ask"), (2.0, "ask"), (2.5, "grant"), (4.0, "grant"), (4.5, "start"), (6.0, "connect")]:
        clock.s = 100.0 + at_s
        steps.over(step)
    assert list(steps.seconds().items()) == [("ask", 2.0), ("grant", 2.0), ("start", 0.5), ("connect", 1.5)]


def test_steps_that_overlap_take_no_time_twice():
    clock = Clock()
    steps = Steps(clock.now_s)
    for at_s, step in [(1.0, "ask"), (2.0, "grant"), (3.0, "ask"), (5.0, "start")]:
        clock.s = 100.0 + at_s
        steps.over(step)
    assert steps.seconds() == {"ask": 3.0, "grant": 0.0, "start": 2.0}


def test_without_steps_there_is_nothing_to_tell():
    assert Steps(Clock().now_s).seconds() == {}
