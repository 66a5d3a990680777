"""The estimator: samples as a state machine, and estimates from them."""

import pytest

from rm_plugin.policies.allox.estimator import SAMPLE_LIFECYCLE, Estimate, Estimator, SampleState, extrapolate
from themis.errors import InvariantError

LIMIT = {"gpu": 2, "cpu": 2}
IDLE = {"gpu": ["g0", "g1", "g2"], "cpu": ["c0"]}


def submitted(*jobs, limit=LIMIT):
    estimator = Estimator(limit)
    for name, user in jobs:
        estimator.submit(name, user, {"gpu": 1000.0})
    return estimator


def test_line_through_two_samples_gives_520_s():
    assert extrapolate((10.0, 25.0), (20.0, 30.0), 1000.0) == 520.0


def test_samples_without_slope_give_a_proportional_time():
    assert extrapolate((10.0, 30.0), (20.0, 30.0), 1000.0) == 1500.0
    assert extrapolate((10.0, 31.0), (20.0, 30.0), 1000.0) == 1500.0


def test_less_than_the_shorter_sample_is_in_proportion_to_it():
    assert extrapolate((10.0, 1.0), (20.0, 30.0), 5.0) == 0.5


def test_job_has_two_samples_per_type_and_waits_for_all_four():
    estimator = Estimator(LIMIT)
    estimator.submit("j", "u", {"gpu": 1000.0, "cpu": 1000.0})
    first = estimator.next_samples(IDLE, 0.0)
    assert [(each.key, each.machine_id, each.iterations) for each in first] == [
        (("j", "gpu", 0), "g0", 10.0),
        (("j", "gpu", 1), "g1", 20.0),
        (("j", "cpu", 0), "c0", 10.0),
    ]
    estimator.finished(("j", "gpu", 0), 25.0, 2.0)
    estimator.finished(("j", "gpu", 1), 30.0, 3.0)
    estimator.finished(("j", "cpu", 0), 50.0)
    assert estimator.estimates("j") is None
    assert [each.key for each in estimator.next_samples(IDLE, 60.0)] == [("j", "cpu", 1)]
    estimator.finished(("j", "cpu", 1), 90.0)
    assert estimator.estimates("j") == {
        "gpu": Estimate(time_s=520.0, memory_gb=3.0),
        "cpu": Estimate(time_s=4010.0, memory_gb=0.0),
    }


def test_samples_go_round_robin_over_users_within_the_limit():
    estimator = submitted(("a1", "ann"), ("a2", "ann"), ("b1", "bob"))
    assert [each.job_id for each in estimator.next_samples(IDLE, 0.0)] == ["a1", "b1"]
    assert estimator.next_samples(IDLE, 0.0) == []
    estimator.finished(("a1", "gpu", 0), 1.0)
    assert [each.key for each in estimator.next_samples(IDLE, 1.0)] == [("a1", "gpu", 1)]


def test_long_sample_is_cut_and_its_estimate_is_a_lower_bound():
    estimator = submitted(*((f"j{place}", "u") for place in range(3)), limit={"gpu": 9})
    machines = {"gpu": [f"g{place}" for place in range(9)]}
    estimator.next_samples({"gpu": machines["gpu"][:5]}, 0.0)
    for key in (("j0", "gpu", 0), ("j0", "gpu", 1), ("j1", "gpu", 0)):
        estimator.finished(key, 2.0)
    assert estimator.cuts(9.0) == []
    assert [sample.key for sample in estimator.cuts(10.0)] == [("j1", "gpu", 1), ("j2", "gpu", 0)]
    assert estimator.estimates("j2") == {"gpu": Estimate(time_s=1000.0, memory_gb=0.0, is_lower_bound=True)}
    assert estimator.next_samples(machines, 10.0) == []


def test_failed_sample_leaves_its_type_out():
    estimator = Estimator(LIMIT)
    estimator.submit("j", "u", {"gpu": 1000.0, "cpu": 1000.0})
    estimator.next_samples({"gpu": ["g0"], "cpu": ["c0", "c1"]}, 0.0)
    estimator.failed(("j", "gpu", 0))
    estimator.finished(("j", "cpu", 0), 1.0)
    estimator.finished(("j", "cpu", 1), 2.0)
    assert list(estimator.estimates("j")) == ["cpu"]


def test_failed_samples_leave_no_estimates():
    estimator = submitted(("j", "u"))
    estimator.next_samples(IDLE, 0.0)
    for part in (0, 1):
        estimator.failed(("j", "gpu", part))
    assert estimator.estimates("j") == {}


def test_sample_of_a_lost_machine_runs_again():
    estimator = submitted(("j", "u"), limit={"gpu": 1})
    estimator.next_samples(IDLE, 0.0)
    estimator.machine_lost("g0")
    assert {each.state for each in estimator.samples} == {SampleState.QUEUED}
    estimator.next_samples({"gpu": ["g1"]}, 5.0)
    (again,) = estimator.next_samples({"gpu": ["g1"]}, 5.0) or [s for s in estimator.samples if s.machine_id]
    assert (again.machine_id, again.started_s) == ("g1", 5.0)


def test_cancelled_job_stops_its_running_samples_only():
    estimator = submitted(("j", "u"), limit={"gpu": 1})
    estimator.next_samples(IDLE, 0.0)
    assert [each.key for each in estimator.cancel("j")] == [("j", "gpu", 0)]
    assert estimator.next_samples(IDLE, 1.0) == []
    assert estimator.cancel("unknown") == []


def test_restored_estimator_goes_on_as_before():
    estimator = submitted(("a", "ann"), ("b", "bob"))
    estimator.next_samples(IDLE, 0.0)
    estimator.finished(("a", "gpu", 0), 3.0)
    again = Estimator(LIMIT, estimator.samples)
    assert again.samples == estimator.samples
    for each in (estimator, again):
        each.finished(("b", "gpu", 0), 4.0)
    assert again.next_samples(IDLE, 9.0) == estimator.next_samples(IDLE, 9.0)


def test_sample_that_ended_cannot_end_again():
    estimator = submitted(("j", "u"))
    estimator.next_samples(IDLE, 0.0)
    estimator.finished(("j", "gpu", 0), 1.0)
    with pytest.raises(InvariantError, match="cannot go from DONE to FAILED"):
        estimator.failed(("j", "gpu", 0))
    with pytest.raises(InvariantError, match="profiled twice"):
        estimator.submit("j", "u", {"gpu": 1.0})


def test_ended_states_are_final():
    final = {state for state in SampleState if SAMPLE_LIFECYCLE.is_final(state)}
    assert final == set(SampleState) - {SampleState.QUEUED, SampleState.RUNNING}
