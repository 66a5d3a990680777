"""By throughput scaling, a unit at a time."""

from rm_plugin.policies.optimus import OptimusPolicy
from themis.apps import Slowdown
from themis.bids import GangDemand
from themis.cluster import Allocation

FLAT = Slowdown(1.0, 1.0, 1.0, 1.0)
FAR = Slowdown(1.0, 1.0, 2.0, 4.0)


def job(name, least=1, most=4, unit=1, slowdown=FLAT, held=None):
    return GangDemand(
        job_id=name,
        min_gpus=least,
        max_gpus=most,
        unit_gpus=unit,
        slowdown=slowdown,
        held=Allocation.of(held or {}),
        work_left_gpu_s=100.0,
    )


def totals(gpus):
    return {app_id: sum(counts.values()) for app_id, counts in gpus.items()}


def test_every_job_gets_its_smallest_gang_before_any_grows(make_snapshot, gpus_of):
    shot = make_snapshot(
        {"a": [job("a0")], "b": [job("b0"), job("b1")]}, attained={"b": 99.0}, rho={"a": 9.0}, slots=((3,),)
    )
    assert totals(gpus_of(OptimusPolicy().decide(shot))) == {"a": 1, "b": 2}


def test_jobs_without_gpus_rank_by_least_app_throughput(make_snapshot, gpus_of):
    shot = make_snapshot(
        {app: [job(f"{app}{place}", 1, 1) for place in range(6)] for app in "ab"}, kept={"a": {"m0": 2}}
    )
    assert totals(gpus_of(OptimusPolicy().decide(shot))) == {"a": 2, "b": 4}


def test_the_smaller_gang_scales_better(make_snapshot, gpus_of):
    """From 1 to 2 GPUs is twice as fast, from 2 to 3 only half as fast again."""
    shot = make_snapshot({"a": [job("a0")], "b": [job("b0")]}, slots=((4,),))
    assert totals(gpus_of(OptimusPolicy().decide(shot))) == {"a": 2, "b": 2}


def test_a_distant_gpu_scales_worse(make_snapshot, gpus_of):
    """Both jobs hold two GPUs; beside b's two more are free, so they are worth nothing to a."""
    shot = make_snapshot(
        {"a": [job("a0", 1, 2, slowdown=FAR, held={"m0": 2})], "b": [job("b0", 1, 2, slowdown=FAR, held={"m1": 2})]},
        slots=((2,), (4,)),
        taken={"m0": 2, "m1": 2},
    )
    assert gpus_of(OptimusPolicy().decide(shot)) == {"b": {"m1": 2}}


def test_where_one_unit_more_is_no_faster_several_are(make_snapshot, gpus_of):
    """One GPU at S = 1; over machines at S = 2 two are no faster, but three are."""
    shot = make_snapshot({"a": [job("a0", slowdown=FAR)]}, slots=((1,), (1,)))
    assert gpus_of(OptimusPolicy().decide(shot)) == {"a": {"m0": 1}}
    shot = make_snapshot({"a": [job("a0", slowdown=FAR)]}, slots=((1,), (1,), (1,), (1,)))
    assert totals(gpus_of(OptimusPolicy().decide(shot))) == {"a": 4}


def test_an_app_renews_in_place(make_snapshot, gpus_of):
    """Best fit alone would move it to m1."""
    shot = make_snapshot({"a": [job("a0", 2, 2)]}, renewable={"a": {"m0": 2}})
    assert gpus_of(OptimusPolicy().decide(shot)) == {"a": {"m0": 2}}
