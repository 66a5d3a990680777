"""Worst rho first, without an auction."""

import math

from rm_plugin.arbiter.round_values import Decision
from rm_plugin.policies.worst_rho_first import WorstRhoFirstPolicy
from themis.bids import GangDemand


def wants(gpus):
    return [GangDemand(job_id="j", min_gpus=gpus, max_gpus=gpus)]


def test_the_worst_app_is_served_first_and_whole(make_snapshot, gpus_of):
    shot = make_snapshot(
        {"a": wants(4), "b": wants(4), "c": wants(2)}, rho={"a": 1.0, "b": 3.0, "c": 2.0}, attained={"b": 9.0}
    )
    decision = WorstRhoFirstPolicy().decide(shot)
    assert isinstance(decision, Decision)
    assert gpus_of(decision) == {"b": {"m0": 4}, "c": {"m1": 2}}
    assert [app_demand.app_id for app_demand in decision.unserved] == ["a"]


def test_an_app_that_would_never_end_is_the_worst(make_snapshot, gpus_of):
    shot = make_snapshot({"a": wants(4), "b": wants(4)}, rho={"a": 1e9, "b": math.inf})
    assert gpus_of(WorstRhoFirstPolicy().decide(shot)) == {"b": {"m0": 4}}


def test_ties_by_name(make_snapshot, gpus_of):
    shot = make_snapshot({"b": wants(4), "a": wants(4)})
    assert gpus_of(WorstRhoFirstPolicy().decide(shot)) == {"a": {"m0": 4}}
