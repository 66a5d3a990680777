"""The profiling agent's state machine."""

import pytest

from rm_plugin.policies.oef.profiling import (
    Failed,
    Measured,
    Observed,
    ProfileState,
    Requested,
    Started,
    advance,
    requested,
)
from themis.errors import InputError

TYPES = ("k80", "v100")
FAST, SLOW = (9.0,) * 3 + (0.5,) * 10, (9.0,) * 3 + (1.0,) * 10


def after(*events, profile=None):
    profile = profile or requested(TYPES)
    for event in events:
        profile = advance(profile, event)
    return profile


DONE = after(Started(), Measured(batch_s=SLOW), Measured(batch_s=FAST))


def test_every_type_is_measured_in_turn():
    assert requested(TYPES).next_type == "k80"
    half = after(Started(), Measured(batch_s=SLOW))
    assert (half.state, half.next_type) == (ProfileState.RUNNING, "v100")
    assert (DONE.state, DONE.rates, DONE.next_type) == (ProfileState.DONE, (1.0, 2.0), None)


def test_the_warm_up_does_not_count_and_the_median_does():
    noisy = (90.0, 90.0, 90.0, *(2.0,) * 9, 100.0)
    assert after(Started(), Measured(batch_s=noisy)).rates == (0.5,)


def test_a_type_on_which_the_job_cannot_run_has_rate_0():
    assert after(Started(), Measured(batch_s=()), Measured(batch_s=FAST)).rates == (0.0, 2.0)


def test_a_job_without_a_usable_type_fails():
    profile = after(Started(), Measured(batch_s=()), Measured(batch_s=()))
    assert (profile.state, profile.reason) == (ProfileState.FAILED, "it can run on no type")


@pytest.mark.parametrize("batches", [(1.0,) * 12, (1.0,) * 12 + (0.0,), (1.0,) * 12 + (float("inf"),)])
def test_unusable_times_are_refused(batches):
    with pytest.raises(InputError):
        after(Started(), Measured(batch_s=batches))


def test_a_failed_run_can_be_requested_again():
    failed = after(Started(), Failed(reason="out of memory"))
    assert (failed.state, failed.reason) == (ProfileState.FAILED, "out of memory")
    assert after(Requested(types=TYPES), profile=failed) == requested(TYPES)


@pytest.mark.parametrize(("rate", "state"), [(1.7, "done"), (2.3, "done"), (1.5, "stale"), (2.5, "stale")])
def test_a_profile_that_predicts_badly_is_stale(rate, state):
    assert after(Observed(gpu_type="v100", rate=rate), profile=DONE).state == state


@pytest.mark.parametrize(
    ("profile", "event"),
    [
        (requested(TYPES), Measured(batch_s=FAST)),
        (requested(TYPES), Requested(types=TYPES)),
        (DONE, Started()),
        (DONE, Failed(reason="late")),
        (DONE, Observed(gpu_type="other", rate=1.0)),
    ],
)
def test_an_event_that_does_not_fit_changes_nothing(profile, event):
    assert advance(profile, event) is profile
