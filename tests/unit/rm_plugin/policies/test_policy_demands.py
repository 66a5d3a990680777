"""What apps could still use once gangs have been won, and what is left of the machines."""

import pytest
from msgspec.structs import replace

from rm_plugin.arbiter.leftovers import AppDemand
from rm_plugin.arbiter.round_values import Decision
from rm_plugin.policies.demands import app_demands_of, capacity_after, demands_left, gangs_of, unmet, usable_left
from themis.apps import Slowdown
from themis.bids import FreeMachine, GangDemand, PlacedGang
from themis.cluster import Allocation, Level
from themis.errors import InvariantError


def demand(name, least=2, most=2, work=1.0, held=None):
    return GangDemand(job_id=name, min_gpus=least, max_gpus=most, work_left_gpu_s=work, held=Allocation.of(held or {}))


def gang(pinned=False, slot=None, **counts):
    level = Level.RACK if len(counts) > 1 else Level.MACHINE if slot is None else Level.SLOT
    return PlacedGang(gpus=Allocation.of(counts), level=level, slot=slot, pinned=pinned)


def ids(demands):
    return [each.job_id for each in demands]


def machine(name, *slots):
    return FreeMachine(machine_id=name, rack_id="r", free_slots=slots)


class TestUnmet:
    def test_nothing_won_leaves_everything_most_work_first(self):
        assert ids(unmet([demand("a"), demand("b", work=9.0)], ())) == ["b", "a"]

    def test_of_equal_demands_the_smaller_job_id_comes_first(self):
        assert ids(unmet([demand("beta"), demand("alpha")], ())) == ["alpha", "beta"]

    def test_the_largest_gang_serves_the_job_with_most_work(self):
        demands = [demand("short", 1, 4), demand("long", 1, 4, work=9.0)]
        left = unmet(demands, [gang(m0=4), gang(m1=1)])
        assert [(each.job_id, each.max_gpus) for each in left] == [("short", 3)]

    def test_of_equal_gangs_the_one_on_the_first_machine_serves_the_job_with_most_work(self):
        demands = [demand("short", 1, 4), demand("long", 1, 4, work=9.0)]
        for won in ([gang(m0=2), gang(m1=2)], [gang(m1=2), gang(m0=2)]):
            held = {each.job_id: each.held for each in unmet(demands, won)}
            assert held == {"long": Allocation.of({"m0": 2}), "short": Allocation.of({"m1": 2})}

    def test_a_job_that_won_less_than_it_can_use_may_grow(self):
        (left,) = unmet([demand("a", 2, 6)], [gang(m0=4)])
        assert (left.min_gpus, left.max_gpus, left.held) == (1, 2, Allocation.of({"m0": 4}))

    def test_a_too_small_gang_serves_no_job(self):
        assert ids(unmet([demand("a", 4, 4)], [gang(m0=2)])) == ["a"]

    def test_renewed_gangs_on_one_machine_serve_a_job_each(self):
        """Pinned GPUs are counted by machine: two gangs of two on one machine are four GPUs pinned there."""
        demands = [demand("a"), demand("b"), demand("c")]
        left = unmet(demands, [gang(pinned=True, m0=4)], Allocation.of({"m0": 4}))
        assert ids(left) == ["c"]

    def test_a_renewed_gang_over_two_machines_serves_one_job(self):
        won = [gang(pinned=True, m0=1), gang(pinned=True, m1=1)]
        assert unmet([demand("a")], won, Allocation.of({"m0": 1, "m1": 1})) == ()

    def test_renewed_and_fresh_gangs_together(self):
        demands = [demand("a", work=3.0), demand("b", work=2.0), demand("c")]
        won = [gang(pinned=True, m0=2), gang(m1=2)]
        assert ids(unmet(demands, won, Allocation.of({"m0": 2}))) == ["c"]

    def test_pinned_gpus_beyond_the_held_ones_serve_a_growing_job(self):
        growing = demand("a", 1, 2, held={"m0": 2})
        assert unmet([growing], [gang(pinned=True, m0=2)]) == ()
        assert ids(unmet([growing, demand("b")], [gang(pinned=True, m0=2)])) == ["b"]

    def test_each_pinned_gang_serves_one_job_that_it_fits(self):
        demands = [demand("a", 4, 4, work=9.0), demand("b", work=5.0), demand("c")]
        won = [gang(pinned=True, m0=2), gang(pinned=True, m0=1, m1=1)]
        assert ids(unmet(demands, won, Allocation.of({"m0": 3, "m1": 1}))) == ["a"]

    def test_a_pinned_gang_on_a_held_machine_extends_the_job(self):
        demands = [demand("far", 1, 4, work=9.0, held={"m1": 2}), demand("near", 1, 4, held={"m0": 2})]
        left = unmet(demands, [gang(pinned=True, m0=3)])
        assert [(each.job_id, each.max_gpus) for each in left] == [("far", 4), ("near", 1)]

    def test_room_that_makes_no_whole_unit_is_no_demand(self):
        pairs = GangDemand(job_id="a", min_gpus=2, max_gpus=8, unit_gpus=2)
        assert [each.max_gpus for each in unmet([pairs], [gang(m0=5)])] == [2]

    def test_parts_of_a_gang_and_gangs_together_serve_by_their_count(self):
        demands = [demand("a", work=9.0), demand("b", work=5.0), demand("c")]
        won = [gang(pinned=True, m0=1), gang(pinned=True, m1=2)]
        assert ids(unmet(demands, won, Allocation.of({"m0": 1, "m1": 2}))) == ["b", "c"]

    def test_gpus_that_a_job_grows_by_may_lie_anywhere(self):
        growing = demand("a", 1, 2, held={"m0": 2})
        assert unmet([growing], [gang(m1=2)]) == ()
        # A job without a gang comes first.
        assert ids(unmet([growing, demand("b")], [gang(m1=2)])) == ["a"]


class TestCapacityAfter:
    def test_grants_are_taken_off(self):
        left = capacity_after(
            [machine("m0", 2, 2), machine("m1", 1)], {"a": (gang(m0=3),), "b": (gang(m1=1),)}
        ).machines()
        assert [each.free for each in left] == [1, 0]

    def test_gangs_in_slots_are_taken_off_their_slots_first(self):
        grants = {"a": (gang(m0=2),), "b": (gang(slot=0, m0=2),)}
        assert [each.free_slots for each in capacity_after([machine("m0", 2, 2)], grants).machines()] == [(0, 0)]

    def test_granting_more_gpus_than_are_free_is_a_defect(self):
        with pytest.raises(InvariantError):
            capacity_after([machine("m0", 2)], {"a": (gang(m0=3),)})


class TestUsableLeft:
    def test_gpus_that_a_claim_could_use_are_found(self):
        app_demands = (AppDemand(app_id="a", demands=(demand("j", 2, 2),)),)
        machines = [machine("m0", 3), machine("m1", 1)]
        assert usable_left(machines, Decision(unserved=app_demands)) == 2
        assert usable_left(machines, Decision(auction={"b": (gang(m0=2),)}, unserved=app_demands)) == 2
        assert usable_left(machines, Decision(auction={"b": (gang(m0=3),)}, unserved=app_demands)) == 0

    def test_growing_out_of_a_slot_must_beat_the_slot(self):
        """Two GPUs in a slot, S = 1, against six farther away: 8 / 4.895 is less than 2, but more than 2 / 1.229."""
        steep = Slowdown(1.0, 1.229, 3.673, 4.895)
        app_demands = (AppDemand(app_id="a", demands=(replace(demand("j", 1, 8), slowdown=steep),)),)
        machines = [FreeMachine(machine_id=f"m{n}", rack_id=f"r{n}", free_slots=(2,)) for n in range(4)]
        won = gang(slot=0, m0=2)
        left = demands_left(app_demands, {"a": {"j": won}})
        assert usable_left(machines, Decision(auction={"a": (won,)}, unserved=left)) == 0
        gentle = demands_left((AppDemand(app_id="a", demands=(demand("j", 1, 8),)),), {"a": {"j": won}})
        assert usable_left(machines, Decision(auction={"a": (won,)}, unserved=gentle)) == 6

    def test_granted_gangs_are_subtracted_from_claims(self):
        app_demands = (
            AppDemand(app_id="a", demands=(demand("j"), demand("k", 1, 4))),
            AppDemand(app_id="b", demands=(demand("j"),)),
        )
        left = demands_left(app_demands, {"a": {"j": gang(m0=2), "k": gang(m1=3)}, "b": {"j": gang(m0=2)}})
        assert [(app_demand.app_id, ids(app_demand.demands)) for app_demand in left] == [("a", ["k"])]
        assert left[0].demands[0].max_gpus == 1

    def test_gangs_by_app(self):
        assert gangs_of({"a": {"j": gang(m0=1)}, "b": {}}) == {"a": (gang(m0=1),), "b": ()}


def test_claims_are_of_apps_that_answer_and_could_use_more(make_snapshot):
    shot = make_snapshot(
        {"a": [demand("j")], "b": [], "c": [demand("j")], "d": [demand("j")]},
        silent={"c"},
        bids={"d"},
        renewable={"d": {"m0": 3}},
    )
    app_demands = app_demands_of(shot, {"d": (gang(m0=1),)})
    assert [(app_demand.app_id, app_demand.bid) for app_demand in app_demands] == [("a", False), ("d", True)]
    assert app_demands[1].renewable == Allocation.of({"m0": 2})


@pytest.mark.parametrize(
    ("won", "left"),
    [
        # The renewed gang takes slot 0 first, as in the arbiter, so the gang in slot 0 renews nothing.
        ((gang(pinned=True, m0=1), gang(slot=0, m0=1)), (("m0", (0, 1)),)),
        ((gang(m0=2),), ()),
    ],
)
def test_claim_has_the_renewable_slots_that_the_arbiter_leaves_after_the_gangs_won(make_snapshot, won, left):
    shot = make_snapshot({"a": [demand("j"), demand("k"), demand("l")]}, renewable={"a": {"m0": 2}})
    apps = tuple([replace(app, renewable_slots=(("m0", (1, 1)),)) for app in shot.apps])
    (app_demand,) = app_demands_of(replace(shot, apps=apps), {"a": won})
    assert app_demand.renewable_slots == left
