"""By the forecast decrease of the loss."""

import pytest

from rm_plugin.policies.slaq import SlaqPolicy, loss_decrease
from themis.bids import GangDemand, LossForecast


def curve(iteration, drop=1.0, scale=100.0, serial_s=1.0):
    return LossForecast(floor=0.1, drop=drop, scale=scale, power=1.0, iteration=iteration, serial_iteration_s=serial_s)


def job(name, forecast, gpus=4, most=None, work=1e9):
    return GangDemand(job_id=name, min_gpus=gpus, max_gpus=most or gpus, work_left_gpu_s=work, forecast=forecast)


def test_the_decrease_by_hand():
    """Loss 1 / (1 + k), one iteration a lease on one GPU: from 1/2 to 1/4 on two GPUs, over 1 - 1/2 at its steepest."""
    forecast = LossForecast(floor=0.0, drop=1.0, scale=1.0, power=1.0, iteration=1, serial_iteration_s=600.0)
    assert loss_decrease(job("j", forecast), 2.0, 600.0) == pytest.approx(0.5)
    assert loss_decrease(job("j", forecast), 0.0, 600.0) == 0.0


def test_a_lease_counts_no_further_than_the_phase():
    forecast = LossForecast(floor=0.0, drop=1.0, scale=1.0, power=1.0, iteration=0, serial_iteration_s=600.0)
    assert loss_decrease(job("j", forecast, work=600.0), 9.0, 600.0) == pytest.approx(1.0)


@pytest.mark.parametrize(
    "other",
    [curve(50, drop=1e6), curve(500, scale=1000.0, serial_s=0.1)],
    ids=["losses of another size", "iterations of another length"],
)
def test_neither_the_size_of_losses_nor_that_of_iterations_matters(other):
    mine, its = (loss_decrease(job("j", forecast), 4.0, 600.0) for forecast in (curve(50), other))
    assert its == pytest.approx(mine)


def test_the_job_that_falls_most_comes_first(make_snapshot, gpus_of):
    """The late job's loss is larger, and its app is further from fair and earlier, but it hardly falls any more."""
    apps = {"a": [job("late", curve(9000, drop=50.0))], "b": [job("early", curve(10))]}
    shot = make_snapshot(apps, rho={"a": 9.0}, submitted={"b": 9.0}, attained={"b": 9.0})
    assert gpus_of(SlaqPolicy().decide(shot)) == {"b": {"m0": 4}}


def test_more_gpus_take_more_off(make_snapshot, gpus_of):
    apps = {"a": [job("a0", curve(50), 2)], "b": [job("b0", curve(50), 4)]}
    assert gpus_of(SlaqPolicy().decide(make_snapshot(apps, slots=((4,),)))) == {"b": {"m0": 4}}


def test_a_job_of_which_too_little_is_known_comes_before_those_that_are_known(make_snapshot, gpus_of):
    apps = {"a": [job("known", curve(0))], "b": [job("new", None)]}
    assert gpus_of(SlaqPolicy().decide(make_snapshot(apps))) == {"b": {"m0": 4}}


def test_a_job_that_falls_no_more_comes_last_but_is_served(make_snapshot, gpus_of):
    apps = {"a": [job("flat", curve(10, drop=0.0), 2)], "b": [job("b0", curve(9000), 4)]}
    assert gpus_of(SlaqPolicy().decide(make_snapshot(apps, slots=((4,),)))) == {"b": {"m0": 4}}
    assert gpus_of(SlaqPolicy().decide(make_snapshot(apps))) == {"a": {"m1": 2}, "b": {"m0": 4}}


def test_the_rest_of_its_decrease_counts_for_a_job_that_grows(make_snapshot, gpus_of):
    """Each renews its two GPUs; the two that are left lie beside b's, whose loss falls faster."""
    apps = {"a": [job("late", curve(9000), 2, 4)], "b": [job("early", curve(10), 2, 4)]}
    shot = make_snapshot(apps, slots=((2,), (4,)), renewable={"a": {"m0": 2}, "b": {"m1": 2}})
    assert gpus_of(SlaqPolicy().decide(shot)) == {"a": {"m0": 2}, "b": {"m1": 4}}


@pytest.mark.parametrize(
    ("submitted", "first"),
    [({"beta": 1.0, "alpha": 9.0}, "beta"), ({}, "alpha")],
    ids=["the earlier submission", "then the smaller app id"],
)
def test_equal_decreases_rank_by_submission_then_app_id(make_snapshot, gpus_of, submitted, first):
    apps = {"beta": [job("b0", curve(50))], "alpha": [job("a0", curve(50))]}
    assert gpus_of(SlaqPolicy().decide(make_snapshot(apps, submitted=submitted))) == {first: {"m0": 4}}


def test_of_equal_decreases_the_renewal_comes_first(make_snapshot, gpus_of):
    apps = {"alpha": [job("a0", curve(50))], "beta": [job("b0", curve(50))]}
    shot = make_snapshot(apps, renewable={"beta": {"m0": 4}})
    assert gpus_of(SlaqPolicy().decide(shot)) == {"beta": {"m0": 4}}
