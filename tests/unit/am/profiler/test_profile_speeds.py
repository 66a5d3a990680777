"""The profile by device type: iteration times by type, and the speed on further types."""

import pytest

from am.profiler.profile import JobProfile
from am.profiler.records import StepLoss
from themis.apps import Estimate
from themis.cluster import Level
from themis.speeds import Speeds

ASSUMED = Speeds.of([("k80", 1.0), ("v100", 3.0), ("cpu", 0.2)])


def run(profile, iteration_s, intervals=5, first=0):
    for place in range(intervals + 1):
        step = first + 10 * (place + 1)
        profile.feed(StepLoss(step=step, loss=1.0, seconds=10 * iteration_s if place else None))
    return first + 10 * (intervals + 1)


def profile_of():
    profile = JobProfile(Estimate(serial_iteration_s=2.0))
    profile.assume_pace(ASSUMED)
    return profile


def test_without_measurements_speeds_are_those_assumed():
    profile = profile_of()
    assert profile.speeds() == ASSUMED
    assert profile.serial_iteration_s == 2.0
    assert profile.iteration_s_at(2, Level.SLOT, "v100") == pytest.approx(2.0 / (2 * 3.0))


def test_the_first_type_keeps_its_assumed_speed():
    profile = profile_of()
    profile.started(1, Level.SLOT, "v100")
    run(profile, 0.3)
    assert profile.speeds() == ASSUMED
    assert profile.serial_iteration_s == pytest.approx(0.9)


def test_the_speed_on_a_further_type_is_measured():
    profile = profile_of()
    profile.started(1, Level.SLOT, "k80")
    step = run(profile, 0.8)
    profile.started(1, Level.SLOT, "v100")
    run(profile, 0.2, first=step)
    assert profile.speeds().on("v100") == pytest.approx(4.0)
    assert profile.speeds().on("k80") == 1.0
    assert profile.speeds().on("cpu") == 0.2
    assert profile.serial_iteration_s == pytest.approx(0.8)
    assert profile.iteration_s == pytest.approx(0.2)


def test_types_with_three_intervals_beyond_the_first_one_are_timed_also_the_first_type():
    profile = profile_of()
    profile.started(1, Level.SLOT, "k80")
    step = run(profile, 0.8, intervals=4)
    profile.started(1, Level.SLOT, "v100")
    step = run(profile, 0.2, intervals=3, first=step)
    assert profile.timed_devices == ("k80",)
    run(profile, 0.2, intervals=2, first=step)
    assert profile.timed_devices == ("k80", "v100")


@pytest.mark.parametrize("intervals", [1, 2, 3, 5])
def test_the_next_attempt_compares_types_with_the_same_first_type(intervals):
    """Also if the job left its first type after few intervals. Else that type would get its speed from the second."""
    profile = profile_of()
    profile.started(1, Level.SLOT, "k80")
    step = run(profile, 0.8, intervals)
    profile.started(1, Level.SLOT, "v100")
    step = run(profile, 0.2, first=step)
    again = profile_of()
    again.remember(profile.measurements(iterations=1000))
    assert again.speeds() == profile.speeds()
    assert again.serial_iteration_s == profile.serial_iteration_s
