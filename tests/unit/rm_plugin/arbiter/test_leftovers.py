"""Leftovers: who comes first, what is renewed, and turns."""

import math

import pytest
from msgspec.structs import replace

from rm_plugin.arbiter.leftovers import AppDemand, share_leftovers
from themis.apps import Slowdown
from themis.bids import FreeMachine, GangDemand
from themis.cluster import Allocation, Level
from themis.errors import InputError
from themis.placement.free_capacity import FreeCapacity
from themis.speeds import Speeds


def machines(**slots):
    return tuple(FreeMachine(machine_id=name, rack_id="r0", free_slots=free) for name, free in slots.items())


def app_demand(app_id, *jobs, bid=False, **renewable):
    demands = tuple(
        GangDemand(job_id=f"j{index}", min_gpus=least, max_gpus=most) for index, (least, most) in enumerate(jobs)
    )
    return AppDemand(app_id=app_id, demands=demands, renewable=Allocation.of(renewable), bid=bid)


def gangs_of(free, app_demands, seed):
    """Gangs by app."""
    return {
        app_id: tuple(gangs.values())
        for app_id, gangs in share_leftovers(FreeCapacity(free), app_demands, seed).items()
    }


def gpus(granted):
    return {app_id: sum((gang.gpus for gang in gangs), Allocation()).by_machine() for app_id, gangs in granted.items()}


@pytest.mark.parametrize("seed", range(8))
def test_apps_that_did_not_bid_come_first(seed):
    app_demands = [app_demand("bidder", (1, 1), bid=True), app_demand("other", (1, 1))]
    assert gpus(gangs_of(machines(m0=(1,)), app_demands, seed)) == {"other": {"m0": 1}}


@pytest.mark.parametrize("seed", range(8))
def test_renewals_come_before_new_grants(seed):
    app_demands = [app_demand("a", (2, 2)), app_demand("b", (2, 2), m0=2), app_demand("c", (2, 2))]
    granted = gpus(gangs_of(machines(m0=(2,), m1=(2,)), app_demands, seed))
    assert granted["b"] == {"m0": 2}
    assert len(granted) == 2


def test_a_renewed_part_grows_into_the_whole_gang():
    granted = gangs_of(machines(m0=(4,)), [app_demand("a", (1, 4), m0=2)], 0)
    assert [(gang.gpus.by_machine(), gang.level, gang.slot) for gang in granted["a"]] == [({"m0": 4}, Level.SLOT, 0)]


class TestDeviceTypes:
    """On several device types the app that is relatively fastest on what it would take comes first."""

    K80, V100 = (FreeMachine(machine_id=name, rack_id="r0", free_slots=(1,), device=name) for name in ("k80", "v100"))

    def app_demand(self, app_id, v100, jobs=1, **more):
        speeds = Speeds.of([("k80", 1.0), ("v100", v100)])
        demands = tuple(GangDemand(job_id=f"j{n}", min_gpus=1, max_gpus=1, speeds=speeds) for n in range(jobs))
        return AppDemand(app_id=app_id, demands=demands, **more)

    @pytest.mark.parametrize("seed", range(8))
    def test_each_type_goes_to_the_app_that_gains_most_by_it(self, seed):
        app_demands = [self.app_demand("a", 2.0), self.app_demand("b", 5.0)]
        assert gpus(gangs_of((self.K80, self.V100), app_demands, seed)) == {"a": {"k80": 1}, "b": {"v100": 1}}

    @pytest.mark.parametrize("seed", range(8))
    def test_a_slow_type_alone_goes_to_the_app_that_loses_least_by_it(self, seed):
        # The other machine has no free GPU, but its type says how slow the free one is for each.
        full = replace(self.V100, free_slots=(0,))
        assert set(gangs_of((self.K80, full), [self.app_demand("a", 2.0), self.app_demand("b", 5.0)], seed)) == {"a"}

    @pytest.mark.parametrize("seed", range(8))
    def test_a_job_that_would_grow_counts_by_the_type_of_its_gang(self, seed):
        """Only a K80 is free. It is 0.8 of the mean speed for a, whose job runs on another one, and 0.67 for b."""
        free, full = replace(self.K80, free_slots=(1,)), replace(self.V100, free_slots=(0,))
        grows, starts = self.app_demand("a", 1.5), self.app_demand("b", 2.0)
        (demand,) = grows.demands
        grows = replace(grows, demands=(replace(demand, max_gpus=2, held=Allocation.of({"k80": 1})),))
        assert gpus(gangs_of((free, full), [grows, starts], seed)) == {"a": {"k80": 1}}

    @pytest.mark.parametrize("seed", range(8))
    def test_in_later_turns_too(self, seed):
        machines_ = (replace(self.K80, free_slots=(2,)), replace(self.V100, free_slots=(3,)))
        granted = gpus(
            gangs_of(machines_, [self.app_demand("a", 2.0, jobs=4), self.app_demand("b", 5.0, jobs=4)], seed)
        )
        # Turns: b and a take a V100 each, then b the last one and a a K80, then a the other.
        assert granted == {"a": {"v100": 1, "k80": 2}, "b": {"v100": 2}}

    @pytest.mark.parametrize("seed", range(8))
    def test_apps_that_did_not_bid_still_come_first(self, seed):
        app_demands = [self.app_demand("a", 2.0), self.app_demand("b", 5.0, bid=True)]
        assert gpus(gangs_of((self.V100,), app_demands, seed)) == {"a": {"v100": 1}}

    def test_equally_fast_apps_come_in_the_order_of_the_seed(self):
        app_demands = [self.app_demand(name, 2.0) for name in "abc"]
        free = (replace(self.K80, free_slots=(0,)), self.V100)
        assert {app for seed in range(40) for app in gangs_of(free, app_demands, seed)} == set("abc")


def test_apps_take_turns_job_by_job():
    app_demands = [app_demand(name, *[(1, 1)] * 6) for name in ("a", "b", "c")]
    granted = gangs_of(machines(m0=(6,)), app_demands, 3)
    assert {app_id: len(gangs) for app_id, gangs in granted.items()} == {"a": 2, "b": 2, "c": 2}


def test_gpus_that_only_bidders_can_use_go_to_bidders():
    app_demands = [app_demand("bidder", (1, 3), bid=True), app_demand("other", (4, 4))]
    assert gpus(gangs_of(machines(m0=(3,)), app_demands, 0)) == {"bidder": {"m0": 3}}


def test_the_order_is_drawn_from_the_seed_not_from_the_list():
    app_demands = [app_demand(f"app-{index}", (1, 1)) for index in range(5)]
    winners = set()
    for seed in range(40):
        granted = gangs_of(machines(m0=(1,)), app_demands, seed)
        assert granted == gangs_of(machines(m0=(1,)), app_demands[::-1], seed)
        winners |= set(granted)
    assert winners == {each.app_id for each in app_demands}


def test_gangs_name_their_jobs():
    granted = share_leftovers(FreeCapacity(machines(m0=(3,))), [app_demand("a", (2, 2), (5, 5), (1, 1))], 0)
    assert {job: gang.gpus.gpus for job, gang in granted["a"].items()} == {"j0": 2, "j2": 1}


def test_two_demands_of_one_app_are_refused():
    with pytest.raises(InputError, match="two demands"):
        gangs_of(machines(m0=(3,)), [app_demand("a", (1, 1)), app_demand("a", (1, 1))], 0)


def test_an_unserved_app_does_not_exclude_apps_with_other_slowdowns():
    """Two GPUs on two machines: too far apart for apps that must stay within a machine, in any order of apps."""
    near = Slowdown(1.0, 1.0, math.inf, math.inf)
    free = machines(m0=(1,), m1=(1,))
    for names in (("a", "b", "c"), ("c", "a", "b"), ("b", "c", "a")):
        strict, loose, wide = names
        app_demands = [
            AppDemand(app_id=strict, demands=(GangDemand(job_id="j", min_gpus=2, max_gpus=2, slowdown=near),) * 2),
            AppDemand(app_id=loose, demands=(GangDemand(job_id="j", min_gpus=2, max_gpus=2),)),
            AppDemand(app_id=wide, demands=(GangDemand(job_id="j", min_gpus=3, max_gpus=4),) * 2),
        ]
        assert gpus(gangs_of(free, app_demands, 1)) == {loose: {"m0": 1, "m1": 1}}
