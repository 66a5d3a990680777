"""The state machine of a profile."""

import msgspec
import pytest

from rm_plugin.policies.oef.profiling import (
    MAX_RUNS,
    Failed,
    Measured,
    Observed,
    Profile,
    ProfileState,
    Requested,
    Started,
    Unmeasured,
    advance,
    profiled_speeds,
    requested,
)

TYPES = ("k80", "v100")


def after(*events, profile=None):
    profile = profile or requested(TYPES)
    for event in events:
        profile = advance(profile, event)
    return profile


HALF = after(Started(), Measured(rate=1.0))
DONE = after(Started(), Measured(rate=2.0), profile=HALF)
FAILED = after(Started(), Failed(reason="out of memory"))
STALE = after(Observed(gpu_type="v100", rate=9.0), profile=DONE)


def test_every_type_is_measured_in_turn():
    assert requested(TYPES).next_type == "k80"
    assert (HALF.state, HALF.next_type) == (ProfileState.REQUESTED, "v100")
    assert (DONE.state, DONE.rates, DONE.next_type) == (ProfileState.DONE, (1.0, 2.0), None)


def test_a_job_without_a_usable_type_fails():
    profile = after(Started(), Measured(rate=0.0), Started(), Measured(rate=0.0))
    assert (profile.state, profile.reason) == (ProfileState.FAILED, "it can run on no type")


def test_type_is_assumed_after_the_last_run_without_a_measurement():
    profile = after(*(Started(), Unmeasured(rate=3.0)) * (MAX_RUNS - 1))
    assert (profile.state, profile.next_type, profile.measured) == (ProfileState.REQUESTED, "k80", {})
    profile = after(Started(), Unmeasured(rate=3.0), Started(), Measured(rate=1.0), profile=profile)
    assert (profile.state, profile.assumed, profile.measured) == (ProfileState.DONE, ("k80",), {"v100": 1.0})
    assert after(Observed(gpu_type="k80", rate=9.0), profile=profile) is profile


@pytest.mark.parametrize("profile", [DONE, FAILED, STALE])
def test_a_profile_that_ended_can_be_requested_again(profile):
    assert after(Requested(types=("p100",)), profile=profile) == requested(("p100",))


@pytest.mark.parametrize(("rate", "state"), [(1.7, "done"), (2.3, "done"), (1.5, "stale"), (2.5, "stale")])
def test_a_profile_that_predicts_badly_is_stale(rate, state):
    assert after(Observed(gpu_type="v100", rate=rate), profile=DONE).state == state


@pytest.mark.parametrize(
    ("profile", "event"),
    [
        (requested(TYPES), Measured(rate=1.0)),
        (requested(TYPES), Requested(types=TYPES)),
        (HALF, Requested(types=TYPES)),
        (DONE, Started()),
        (DONE, Failed(reason="late")),
        (DONE, Observed(gpu_type="other", rate=1.0)),
        (FAILED, Observed(gpu_type="k80", rate=1.0)),
    ],
)
def test_an_event_that_does_not_fit_changes_nothing(profile, event):
    assert advance(profile, event) is profile


@pytest.mark.parametrize(
    ("profile", "speeds"),
    [
        (None, ()),
        (requested(TYPES), ()),
        (HALF, ()),
        (FAILED, (1.0, 0.0, 3.0)),
        (DONE, (1.0, 0.0, 2.0)),
    ],
)
def test_shares_are_computed_from_measurements_and_from_reports_if_these_failed(profile, speeds):
    assert profiled_speeds(profile, (1.0, 0.0, 3.0), ("k80", "p100", "v100")) == speeds


def test_a_profile_that_was_stored_without_a_job_is_readable():
    stored = {"state": "requested", "types": ["k80", "v100"], "rates": [1.0], "reason": ""}
    assert msgspec.convert(stored, Profile) == HALF
