"""Least attained service first."""

from rm_plugin.policies.tiresias import TiresiasPolicy
from themis.bids import GangDemand


def wants(gpus):
    return [GangDemand(job_id="j", min_gpus=gpus, max_gpus=gpus)]


def gpus_of(decision):
    return {app_id: sum(gang.gpus.gpus for gang in gangs) for app_id, gangs in decision.grants().items()}


def test_the_app_with_least_gpu_time_is_served_first(make_snapshot):
    shot = make_snapshot({"a": wants(4), "b": wants(4)}, attained={"a": 10.0, "b": 9.0})
    assert gpus_of(TiresiasPolicy().decide(shot)) == {"b": 4}


def test_ties_by_name(make_snapshot):
    shot = make_snapshot({"b": wants(4), "a": wants(4)})
    assert gpus_of(TiresiasPolicy().decide(shot)) == {"a": 4}


def test_rho_does_not_matter(make_snapshot):
    shot = make_snapshot({"a": wants(4), "b": wants(4)}, attained={"a": 1.0, "b": 2.0}, rho={"a": 0.1, "b": 99.0})
    assert gpus_of(TiresiasPolicy().decide(shot)) == {"a": 4}


def test_the_next_app_gets_the_remaining_gpus(make_snapshot):
    shot = make_snapshot({"a": wants(4), "b": wants(4), "c": wants(2)}, attained={"b": 1.0, "c": 2.0})
    decision = TiresiasPolicy().decide(shot)
    assert gpus_of(decision) == {"a": 4, "c": 2}
    assert [app_demand.app_id for app_demand in decision.unserved] == ["b"]
