"""Shortest remaining service first, a unit at a time."""

from rm_plugin.policies.srsf import SrsfPolicy
from themis.bids import GangDemand, PhaseLeft


def jobs(name, count, least=1, most=1, work=500.0):
    return [
        GangDemand(job_id=f"{name}{place}", min_gpus=least, max_gpus=most, work_left_gpu_s=work)
        for place in range(count)
    ]


def phase(count, each_s):
    return PhaseLeft(jobs=count, work_gpu_s=count * each_s, longest_gpu_s=each_s)


def totals(gpus):
    return {app_id: sum(counts.values()) for app_id, counts in gpus.items()}


def test_service_counts_and_not_time(make_snapshot, gpus_of):
    """One job of 1000 s is half the service of four of 500 s, though it ends later."""
    shot = make_snapshot(
        {"a": jobs("a", 4), "b": jobs("b", 1, 4, 4, work=1000.0)},
        phases={"a": [phase(4, 500.0)], "b": [phase(1, 1000.0)]},
        slots=((4,),),
        rho={"a": 9.0},
        attained={"b": 9.0},
    )
    assert totals(gpus_of(SrsfPolicy().decide(shot))) == {"b": 4}


def test_phases_to_come_count(make_snapshot, gpus_of):
    shot = make_snapshot(
        {"a": jobs("a", 6), "b": jobs("b", 6)}, phases={"a": [phase(6, 10.0), phase(1, 9000.0)], "b": [phase(6, 500.0)]}
    )
    assert totals(gpus_of(SrsfPolicy().decide(shot))) == {"b": 6}


def test_units_go_to_jobs_without_a_gang_first(make_snapshot):
    """Served whole, the longer job would take all four."""
    shot = make_snapshot({"a": [*jobs("long", 1, 1, 4, work=900.0), *jobs("short", 1, 1, 4)]}, slots=((4,),))
    assert [gang.gpus.gpus for gang in SrsfPolicy().decide(shot).grants()["a"]] == [2, 2]


def test_the_next_app_gets_the_remaining_gpus(make_snapshot, gpus_of):
    shot = make_snapshot({"a": jobs("a", 2), "b": jobs("b", 9)}, phases={"b": [phase(9, 500.0)]})
    assert totals(gpus_of(SrsfPolicy().decide(shot))) == {"a": 2, "b": 4}


def test_an_app_renews_in_place(make_snapshot, gpus_of):
    """Best fit alone would move it to m1."""
    shot = make_snapshot({"a": jobs("a", 1, 2, 2)}, renewable={"a": {"m0": 2}})
    assert gpus_of(SrsfPolicy().decide(shot)) == {"a": {"m0": 2}}
