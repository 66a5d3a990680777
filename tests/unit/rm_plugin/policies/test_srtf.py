"""Shortest remaining time first."""

from rm_plugin.policies.srtf import SrtfPolicy
from themis.apps import Slowdown
from themis.bids import GangDemand, PhaseLeft

MILD = Slowdown(1.0, 1.0, 1.1, 1.3)


def jobs(name, count, gpus=1, work=500.0, slowdown=MILD):
    return [
        GangDemand(job_id=f"{name}{place}", min_gpus=gpus, max_gpus=gpus, work_left_gpu_s=work, slowdown=slowdown)
        for place in range(count)
    ]


def phase(count, each_s, gang=1):
    return PhaseLeft(jobs=count, work_gpu_s=count * each_s, longest_gpu_s=each_s, gang_gpus=gang)


def totals(gpus):
    return {app_id: sum(counts.values()) for app_id, counts in gpus.items()}


def test_time_counts_and_not_service(make_snapshot, gpus_of):
    """One job of 1000 s ends later than four of 500 s side by side, which are twice the service."""
    shot = make_snapshot(
        {"a": jobs("a", 1, work=1000.0), "b": jobs("b", 4)},
        phases={"a": [phase(1, 1000.0)], "b": [phase(4, 500.0)]},
        slots=((4,),),
        rho={"a": 9.0},
        attained={"b": 9.0},
    )
    assert totals(gpus_of(SrtfPolicy().decide(shot))) == {"b": 4}


def test_phases_to_come_count(make_snapshot, gpus_of):
    shot = make_snapshot(
        {"a": jobs("a", 6), "b": jobs("b", 6)}, phases={"a": [phase(6, 10.0), phase(1, 900.0)], "b": [phase(6, 500.0)]}
    )
    assert totals(gpus_of(SrtfPolicy().decide(shot))) == {"b": 6}


def test_an_offer_that_scatters_a_gang_makes_it_take_longer(make_snapshot, gpus_of):
    """Two jobs of four GPUs each, on two machines of two: a is shorter at S = 1, and b where they lie."""
    strict = Slowdown(1.0, 1.0, 4.0, 4.0)
    shot = make_snapshot(
        {"a": jobs("a", 1, 4, slowdown=strict), "b": jobs("b", 1, 4)},
        phases={"a": [phase(1, 1000.0, 4)], "b": [phase(1, 1200.0, 4)]},
        slots=((2,), (2,)),
    )
    assert totals(gpus_of(SrtfPolicy().decide(shot))) == {"b": 4}


def test_kept_gpus_shorten_the_remaining_time(make_snapshot, gpus_of):
    apps = {"a": jobs("a", 4), "b": jobs("b", 4)}
    phases = {"a": [phase(8, 500.0)], "b": [phase(8, 500.0)]}
    shot = make_snapshot(apps, phases=phases, slots=((8,),), taken={"m0": 4}, kept={"b": {"m0": 4}})
    assert totals(gpus_of(SrtfPolicy().decide(shot))) == {"b": 4}


def test_an_app_whose_longest_job_finds_no_place_is_judged_by_the_next(make_snapshot, gpus_of):
    demands = [*jobs("big", 1, 8, work=900.0), *jobs("small", 1, 4, work=1.0)]
    shot = make_snapshot(
        {"a": demands, "b": jobs("b", 1, 4)}, phases={"a": [phase(1, 10.0, 8)], "b": [phase(1, 500.0, 4)]}
    )
    assert gpus_of(SrtfPolicy().decide(shot)) == {"a": {"m0": 4}}


def test_ties_by_name(make_snapshot, gpus_of):
    shot = make_snapshot({"b": jobs("b", 1, 4), "a": jobs("a", 1, 4)})
    assert gpus_of(SrtfPolicy().decide(shot)) == {"a": {"m0": 4}}
