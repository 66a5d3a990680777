"""Blind placement: random GPUs, no renewals, and only gangs that a job can run on."""

import pytest
from msgspec.structs import replace

from rm_plugin.arbiter.round_values import RoundSettings
from rm_plugin.policies.blind_placement import blind_fit
from rm_plugin.policies.srtf import SrtfPolicy
from themis.apps import Slowdown
from themis.bids import FreeMachine, GangDemand
from themis.choices import GangPlacement
from themis.cluster import Allocation, Level
from themis.placement.best_fit import CurrentGang
from themis.placement.free_capacity import FreeCapacity

FAR = Slowdown(1.0, 1.0, 2.0, 20.0)


def capacity(*free, device="gpu"):
    return FreeCapacity(
        [
            FreeMachine(machine_id=f"m{place}", rack_id=f"r{place}", free_slots=(count,), device=device)
            for place, count in enumerate(free)
        ]
    )


def wanted(most, unit=1, **more):
    return GangDemand(job_id="j", min_gpus=1, max_gpus=most, unit_gpus=unit, **more)


def test_gangs_scatter_although_one_machine_would_hold_them():
    levels = [blind_fit(capacity(4, 4), wanted(4), None, seed).level for seed in range(200)]
    assert 0 < levels.count(Level.MACHINE) < 20
    assert levels.count(Level.CLUSTER) > 180


def test_same_seed_and_job_give_the_same_gpus():
    assert blind_fit(capacity(4, 4, 4), wanted(5), None, 7) == blind_fit(capacity(4, 4, 4), wanted(5), None, 7)


def test_gpus_of_a_task_stay_on_one_machine():
    for seed in range(50):
        gang = blind_fit(capacity(3, 3, 2), wanted(4, unit=2), None, seed)
        assert gang.gpus.gpus == 4
        assert all(count % 2 == 0 for _, count in gang.gpus)


def test_too_few_free_gpus_give_no_gang():
    assert blind_fit(capacity(1, 1), GangDemand(job_id="j", min_gpus=3, max_gpus=4), None, 0) is None


def test_extension_that_is_no_faster_is_placed_by_best_fit():
    current = CurrentGang(gpus=Allocation.of({"m0": 2}))
    for seed in range(50):
        gang = blind_fit(capacity(1, 8), wanted(1, slowdown=FAR), current, seed)
        assert gang is not None
        assert gang.gpus == Allocation.of({"m0": 1})


@pytest.mark.parametrize("placement", GangPlacement)
def test_only_blind_baselines_leave_the_gpus_that_a_job_held(make_snapshot, gpus_of, placement):
    demands = {"a": [GangDemand(job_id="j", min_gpus=2, max_gpus=2)]}
    shot = make_snapshot(demands, renewable={"a": {"m0": 2}}, slots=((4,),) * 6)
    found = set()
    for seed in range(30):
        settings = RoundSettings(gang_placement=placement)
        decision = SrtfPolicy().decide(replace(shot, settings=settings, seed=seed))
        found.add(tuple(gpus_of(decision)["a"].items()))
    assert (found == {(("m0", 2),)}) is (placement is GangPlacement.BEST_FIT)
