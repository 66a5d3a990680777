"""The arbiter: how rounds are framed and settled, when leases end, and what is accounted to whom."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from rm_plugin.arbiter.core import MASTER_STARTS, MASTER_UNAVAILABLE, MIN_LEASE_S, Arbiter, LeasePolicy
from rm_plugin.arbiter.lease_table import LeaseTable
from rm_plugin.arbiter.leftovers import AppDemand
from rm_plugin.arbiter.round_values import Decision, RoundSettings
from rm_plugin.arbiter.rounds import RoundResult
from themis.apps import TaskResources
from themis.bids import PlacedGang
from themis.choices import LeaseEnds
from themis.cluster import Allocation, Cluster, GpuId, Level, Machine
from themis.errors import InvariantError, UnknownNameError
from themis.leases import Lease, LeaseChangeKind
from themis.lifecycle import LeaseState
from themis.queues import ROOT, AppOwner, Queue, Queues
from themis.values import Value

CLUSTER = Cluster(
    name="c",
    machines=(
        Machine(machine_id="m0", rack_id="r", slots=(2, 2)),
        Machine(machine_id="m1", rack_id="r", slots=(2,)),
    ),
)


def arbiter(origin_s=0.0, table=None, **leases):
    return Arbiter(CLUSTER, LeasePolicy(**leases), RoundSettings(), seed=7, grid_origin_s=origin_s, table=table)


def gang(**counts):
    return PlacedGang(gpus=Allocation.of(counts), level=Level.MACHINE)


def grant(one, now_s, **grants):
    """Play a round at `now_s` that grants these gangs."""
    snapshot, _ = one.begin_round(now_s)
    decision = Decision(auction={app: (each,) for app, each in grants.items()})
    return one.settle(RoundResult(snapshot=snapshot, decision=decision), now_s=now_s)


def reported(changes):
    return [
        (change.kind.value.removeprefix("lease_"), change.lease.app_id, str(change.lease.gpu)) for change in changes
    ]


class TestLeaseEnds:
    @pytest.mark.parametrize(
        ("now_s", "end_s"),
        [(1000.0, 1600.0), (1000.1, 1600.0), (1539.0, 1600.0), (1541.0, 2200.0), (1570.0, 2200.0), (1600.0, 2200.0)],
    )
    def test_aligned_ends_lie_on_one_grid_and_too_near_ones_are_passed_over(self, now_s, end_s):
        assert arbiter(origin_s=1000.0).lease_end_s(now_s) == end_s

    def test_staggered_ends_are_a_full_length_off(self):
        assert arbiter(origin_s=1000.0, ends=LeaseEnds.STAGGERED).lease_end_s(1234.5) == 1834.5

    def test_a_staggered_lease_lasts_from_the_end_of_the_one_that_it_follows(self):
        assert arbiter(ends=LeaseEnds.STAGGERED).lease_end_s(570.0, 600.0) == 1200.0
        assert arbiter().lease_end_s(570.0, 600.0) == arbiter().lease_end_s(570.0)

    @given(
        st.floats(0, 4e9),
        st.floats(1, 86400),
        st.floats(0, 0.999),
        st.floats(0, 1e6),
    )
    def test_an_aligned_lease_lasts_longer_than_two_warnings_and_less_than_that_and_a_lease(
        self, origin_s, duration_s, lead_share, later_s
    ):
        lead_s = duration_s * lead_share
        one = arbiter(origin_s=origin_s, duration_s=duration_s, checkpoint_lead_s=lead_s)
        now_s = origin_s + later_s
        end_s = one.lease_end_s(now_s)
        ticks = (end_s - origin_s) / duration_s
        slack_s = 1e-6 + duration_s * 1e-6
        assert abs(ticks - round(ticks)) < 1e-6 * max(1.0, ticks)
        assert 2 * lead_s - slack_s <= end_s - now_s <= 2 * lead_s + duration_s + slack_s

    def test_a_round_is_due_a_lead_before_the_first_end(self):
        one = arbiter()
        assert one.next_lease_round_s() is None
        one.add_app("a", now_s=0.0)
        grant(one, 0.0, a=gang(m1=1))
        assert one.next_lease_round_s() == 570.0

    def test_rounds_at_the_end_of_leases_do_not_creep(self):
        """Renewal after renewal, each decided some seconds late, ends stay on the grid, one lease apart."""
        one = arbiter()
        one.add_app("a", now_s=0.0)
        grant(one, 3.0, a=gang(m1=1))
        ends = []
        for _ in range(5):
            now_s = one.next_lease_round_s() + 2.5
            grant(one, now_s, a=gang(m1=1))
            ends.append(one.table.next_end_s())
        assert ends == [1200.0, 1800.0, 2400.0, 3000.0, 3600.0]


class TestFraming:
    def test_leases_that_end_within_rounding_error_are_renewable(self):
        """Otherwise the caller of a round for it would call the next one at once, and so on."""
        one = arbiter(checkpoint_lead_s=30.0)
        one.add_app("a", now_s=0.0)
        grant(one, 0.0, a=gang(m0=2))
        early, _ = one.begin_round(570.0 - 5e-6)
        assert early.standing("a").renewable == Allocation()
        nearly, _ = one.begin_round(570.0 - 5e-7)
        assert nearly.standing("a").renewable == Allocation.of({"m0": 2})

    def test_free_gpus_and_leases_that_end_within_the_lead_are_offered(self):
        one = arbiter()
        one.add_app("a", now_s=0.0)
        one.add_app("b", now_s=0.0)
        grant(one, 0.0, a=gang(m0=3))
        early, _ = one.begin_round(569.0)
        assert early.free == Allocation.of({"m0": 1, "m1": 2})
        assert early.standing("a").kept == Allocation.of({"m0": 3})
        late, _ = one.begin_round(570.0)
        assert late.free == Allocation.of({"m0": 4, "m1": 2})
        assert late.standing("a").renewable == Allocation.of({"m0": 3})
        assert late.standing("a").kept == Allocation()
        assert (early.round_id, late.round_id) == (2, 3)
        assert early.seed != late.seed

    def test_a_lease_that_is_expiring_is_neither_kept_nor_offered(self):
        one = arbiter()
        one.add_app("a", now_s=0.0)
        grant(one, 0.0, a=gang(m1=2))
        grant(one, 570.0)
        snapshot, _ = one.begin_round(580.0)
        assert snapshot.free == Allocation.of({"m0": 4})
        assert snapshot.standing("a").kept == snapshot.standing("a").renewable == Allocation()

    def test_reserved_gpus_count_as_kept(self):
        one = arbiter()
        for app in "ab":
            one.add_app(app, now_s=0.0)
        grant(one, 0.0, a=gang(m1=2))
        grant(one, 570.0, b=gang(m1=2))
        snapshot, _ = one.begin_round(580.0)
        assert snapshot.standing("b").kept == Allocation.of({"m1": 2})

    def test_apps_are_ordered_by_submission_with_their_contention(self):
        one = arbiter()
        one.add_app("z", now_s=0.0)
        one.add_app("a", now_s=100.0)
        snapshot, _ = one.begin_round(200.0)
        assert [app.app_id for app in snapshot.apps] == ["z", "a"] == list(one.active_apps)
        assert [snapshot.contentions.of(app) for app in ("z", "a")] == [1.5, 2.0]
        assert snapshot.contentions.of("a") == 2.0 == one.contention("a", 200.0)
        assert snapshot.standing("a").submitted_at_s == 100.0

    def test_snapshot_has_what_tasks_need_besides_gpus(self):
        one = arbiter()
        resources = TaskResources(memory_mb=100, vcores=3)
        one.add_app("a", now_s=0.0, resources=resources)
        assert one.begin_round(0.0)[0].standing("a").resources == resources

    def test_an_app_that_ended_counts_no_longer(self):
        one = arbiter()
        one.add_app("a", now_s=0.0)
        one.add_app("b", now_s=0.0)
        one.end_app("b", now_s=100.0, reason="it ended")
        assert one.contention("a", 200.0) == (2 * 100.0 + 100.0) / 200.0

    def test_the_same_seed_gives_the_same_rounds(self):
        assert arbiter().begin_round(5.0)[0].seed == arbiter().begin_round(9.0)[0].seed


class TestSilence:
    def table(self):
        one = arbiter()
        for app in "ab":
            one.add_app(app, now_s=0.0)
        grant(one, 0.0, a=gang(m1=1), b=gang(m0=1))
        return one

    def test_leases_of_a_silent_app_wait_for_it(self):
        one = self.table()
        one.set_silent("a", True)
        snapshot, prolonged = one.begin_round(570.0)
        assert reported(prolonged) == [("renewed", "a", "m1/0")]
        assert prolonged[0].lease.expires_at_s == 1200.0
        assert snapshot.standing("a").silent
        assert snapshot.standing("a").kept == Allocation.of({"m1": 1})
        assert snapshot.standing("b").renewable == Allocation.of({"m0": 1})
        assert snapshot.free == Allocation.of({"m0": 4, "m1": 1})
        assert reported(one.settle(RoundResult(snapshot=snapshot, decision=Decision()), now_s=570.0)) == [
            ("expiring", "b", "m0/0")
        ]

    def test_once_it_is_back_they_end_like_any_other(self):
        one = self.table()
        one.set_silent("a", True)
        one.begin_round(570.0)
        one.set_silent("a", False)
        snapshot, prolonged = one.begin_round(1170.0)
        assert prolonged == []
        assert snapshot.standing("a").renewable == Allocation.of({"m1": 1})

    def test_each_lease_of_a_silent_app_waits_once_until_it_reports(self):
        one = arbiter(ends=LeaseEnds.STAGGERED)
        one.add_app("a", now_s=0.0)
        grant(one, 0.0, a=gang(m1=1))
        grant(one, 100.0, a=gang(m0=1))
        one.set_silent("a", True)
        assert reported(one.begin_round(600.0)[1]) == [("renewed", "a", "m1/0")]
        assert reported(one.begin_round(700.0)[1]) == [("renewed", "a", "m0/0")]
        one.heard_of(["a"])
        assert reported(one.begin_round(1200.0)[1]) == [("renewed", "a", "m1/0")]
        assert reported(one.begin_round(1300.0)[1]) == [("renewed", "a", "m0/0")]
        assert reported(one.begin_round(1800.0)[1]) == [("expiring", "a", "m1/0")]

    def test_start_of_an_app_master_is_no_silence(self):
        one = self.table()
        one.set_silent("a", True)
        one.set_starting("a", 1300.0)
        for now_s in (570.0, 1170.0):
            _, changes = one.begin_round(now_s)
            assert reported(changes) == [("renewed", "a", "m1/0")]
            assert changes[0].reason == MASTER_STARTS
        _, changes = one.begin_round(1770.0)
        assert (reported(changes), changes[0].reason) == ([("renewed", "a", "m1/0")], MASTER_UNAVAILABLE)
        assert reported(one.begin_round(2370.0)[1]) == [("expiring", "a", "m1/0")]

    @pytest.mark.parametrize("silent", [True, False])
    def test_start_ends_with_the_registration_or_the_loss(self, silent):
        one = self.table()
        one.set_silent("a", True)
        one.set_starting("a", 1300.0)
        one.set_silent("a", silent)
        _, changes = one.begin_round(570.0)
        assert [change.reason for change in changes] == [MASTER_UNAVAILABLE] * silent

    def test_leases_of_an_app_that_leaves_do_not_wait_for_its_start(self):
        one = self.table()
        one.set_silent("a", True)
        one.set_starting("a", 1300.0)
        one.leave("a", now_s=10.0, reason="a kill")
        one.begin_round(570.0)
        assert reported(one.begin_round(1170.0)[1]) == [("expiring", "a", "m1/0")]

    def test_an_unknown_app_cannot_be_silent(self):
        one = self.table()
        one.set_silent("nobody", True)
        one.set_starting("nobody", 10.0)
        assert one.active_apps == ("a", "b")


@pytest.mark.parametrize(("at_most_s", "end_s"), [(0.0, 600.0), (100.0, 140.0), (900.0, 600.0), (1.0, 70.0)])
def test_gang_with_a_shorter_lease_ends_off_the_grid_after_two_leads_at_least(at_most_s, end_s):
    one = arbiter()
    one.add_app("a", now_s=0.0)
    grant(one, 10.0, a=replace(gang(m0=1), at_most_s=at_most_s))
    assert [lease.expires_at_s for lease in one.table.of_app("a")] == [end_s]


def test_shorter_lease_without_a_lead_is_longer_than_times_that_count_as_one():
    one = arbiter(checkpoint_lead_s=0.0)
    one.add_app("a", now_s=0.0)
    grant(one, 10.0, a=replace(gang(m0=1), at_most_s=1e-9))
    assert [lease.expires_at_s for lease in one.table.of_app("a")] == [10.0 + MIN_LEASE_S]


class TestLeaving:
    def table(self):
        one = arbiter()
        for app in "ab":
            one.add_app(app, now_s=0.0)
        grant(one, 0.0, a=gang(m1=2))
        return one

    def test_an_app_that_leaves_during_a_round_wins_nothing_and_keeps_its_leases(self):
        one = self.table()
        snapshot, _ = one.begin_round(10.0)
        assert one.leave("a", now_s=11.0, reason="killed") == []
        decision = Decision(auction={"a": (gang(m0=2),), "b": (gang(m0=2),)})
        changes = one.settle(RoundResult(snapshot=snapshot, decision=decision), now_s=12.0)
        assert {(kind, app) for kind, app, _ in reported(changes)} == {("granted", "b")}
        assert [str(lease.gpu) for lease in one.table.of_app("a")] == ["m1/0", "m1/1"]
        one.validate()

    def test_a_leaving_apps_renewable_gpus_go_to_the_winner_after_their_return(self):
        one = self.table()
        snapshot, _ = one.begin_round(570.0)
        one.leave("a", now_s=571.0, reason="killed")
        decision = Decision(auction={"b": (gang(m1=1),), "a": (gang(m1=1),)})
        changes = one.settle(RoundResult(snapshot=snapshot, decision=decision), now_s=572.0)
        assert sorted(reported(changes)) == [
            ("expiring", "a", "m1/0"),
            ("expiring", "a", "m1/1"),
            ("reserved", "b", "m1/0"),
        ]
        assert reported(one.end_app("a", now_s=580.0, reason="it ended")) == [
            ("released", "a", "m1/0"),
            ("granted", "b", "m1/0"),
            ("released", "a", "m1/1"),
        ]
        one.validate()

    def test_reserved_gpus_of_a_leaving_app_are_released_at_once(self):
        one = self.table()
        grant(one, 570.0, b=gang(m1=2))
        changes = one.leave("b", now_s=575.0, reason="killed")
        assert [(change.reserved, change.reason) for change in changes] == [(True, "killed")] * 2
        assert reported(changes) == [("released", "b", "m1/0"), ("released", "b", "m1/1")]
        assert reported(one.end_app("a", now_s=580.0, reason="it ended")) == [
            ("released", "a", "m1/0"),
            ("released", "a", "m1/1"),
        ]

    def test_stale_grants_of_an_app_that_left_are_dropped(self):
        one = self.table()
        app_demands = tuple(AppDemand(app_id=app, demands=()) for app in "ab")
        decision = Decision(auction={"a": (gang(m0=2),)}, leftovers={"b": (gang(m0=1),)}, unserved=app_demands)
        assert one.what_stands(decision) is decision
        one.leave("a", now_s=5.0, reason="killed")
        assert one.what_stands(decision) == Decision(leftovers={"b": (gang(m0=1),)}, unserved=app_demands[1:])
        one.machine_lost("m0", now_s=6.0, reason="gone")
        assert not any(one.what_stands(decision).grants().values())

    def test_an_app_that_left_stays_unreachable(self):
        one = self.table()
        one.begin_round(4.0)
        one.leave("a", now_s=5.0, reason="killed")
        assert one.begin_round(6.0)[0].standing("a").silent
        one.set_silent("a", False)
        assert one.begin_round(10.0)[0].standing("a").silent

    def test_an_unknown_app_cannot_leave(self):
        assert self.table().leave("nobody", now_s=5.0, reason="killed") == []


class TestSettling:
    def test_grants_to_an_app_that_ended_are_dropped(self):
        one = arbiter()
        for app in "ab":
            one.add_app(app, now_s=0.0)
        snapshot, _ = one.begin_round(0.0)
        one.end_app("a", now_s=1.0, reason="it ended")
        decision = Decision(auction={"a": (gang(m0=4),), "b": (gang(m1=2),)})
        changes = one.settle(RoundResult(snapshot=snapshot, decision=decision), now_s=2.0)
        assert reported(changes) == [("granted", "b", "m1/0"), ("granted", "b", "m1/1")]
        one.validate()

    def test_gpus_given_back_meanwhile_are_granted_at_once(self):
        one = arbiter()
        for app in "ab":
            one.add_app(app, now_s=0.0)
        grant(one, 0.0, a=gang(m1=2))
        snapshot, _ = one.begin_round(570.0)
        one.release([lease.lease_id for lease in one.table.of_app("a")], now_s=571.0, reason="early")
        changes = one.settle(RoundResult(snapshot=snapshot, decision=Decision(auction={"b": (gang(m1=2),)})), now_s=572)
        assert reported(changes) == [("granted", "b", "m1/0"), ("granted", "b", "m1/1")]

    def test_only_leases_that_this_round_put_up_expire(self):
        one = arbiter()
        for app in "ab":
            one.add_app(app, now_s=0.0)
        grant(one, 0.0, a=gang(m1=1))
        snapshot, _ = one.begin_round(100.0)
        assert one.settle(RoundResult(snapshot=snapshot, decision=Decision()), now_s=575.0) == []

    def test_leases_of_unknown_apps_are_a_defect(self):
        one = arbiter()
        lease = Lease(lease_id=1, gpu=GpuId("m1", 0), app_id="ghost", granted_at_s=0, expires_at_s=600)
        with pytest.raises(InvariantError, match="not active"):
            arbiter(table=LeaseTable(CLUSTER, [lease])).validate()
        one.validate()

    def test_ended_leases_of_unknown_apps_do_not_break_a_round(self):
        lease = Lease(lease_id=1, gpu=GpuId("m1", 0), app_id="ghost", granted_at_s=0, expires_at_s=600)
        one = arbiter(table=LeaseTable(CLUSTER, [lease]))
        one.add_app("a", now_s=0.0)
        snapshot, _ = one.begin_round(590.0)
        assert [app.app_id for app in snapshot.apps] == ["a"]


class TestGpuTime:
    def test_running_leases_count_and_ended_ones_stay_counted(self):
        one = arbiter()
        one.add_app("a", now_s=0.0, attained_gpu_s=5.0)
        grant(one, 0.0, a=gang(m0=2, m1=1))
        assert one.attained_gpu_s("a", 100.0) == 5 + 300
        first = one.table.of_app("a")[0]
        one.release([first.lease_id], now_s=100.0, reason="x")
        assert one.attained_gpu_s("a", 150.0) == 5 + 100 + 2 * 150
        rest = [lease.lease_id for lease in one.table.of_app("a")]
        one.revoke(rest, now_s=200.0, reason="x")
        assert one.attained_gpu_s("a", 1000.0) == 5 + 100 + 2 * 200

    def test_renewals_count_once(self):
        one = arbiter()
        one.add_app("a", now_s=0.0)
        grant(one, 0.0, a=gang(m1=1))
        grant(one, 570.0, a=gang(m1=1))
        assert one.attained_gpu_s("a", 1000.0) == 1000.0

    def test_waiting_for_a_gpu_costs_nothing(self):
        one = arbiter()
        for app in "ab":
            one.add_app(app, now_s=0.0)
        grant(one, 0.0, a=gang(m1=2))
        grant(one, 570.0, b=gang(m1=2))
        assert one.attained_gpu_s("b", 590.0) == 0.0
        held = [lease.lease_id for lease in one.table.of_app("a")]
        one.release(held[:1], now_s=595.0, reason="x")
        assert one.attained_gpu_s("b", 600.0) == 5.0
        (waiting,) = one.table.reserved.values()
        one.release([waiting.lease_id], now_s=610.0, reason="it ended first")
        assert one.attained_gpu_s("b", 610.0) == 15.0

    def test_an_app_that_ended_takes_its_account_along(self):
        one = arbiter()
        one.add_app("a", now_s=0.0)
        grant(one, 0.0, a=gang(m1=2))
        changes = one.end_app("a", now_s=10.0, reason="done")
        assert reported(changes) == [("released", "a", "m1/0"), ("released", "a", "m1/1")]
        assert {change.reason for change in changes} == {"done"}
        assert one.active_apps == ()
        assert one.table.live == {}


class TestOverdue:
    def test_an_unreturned_lease_is_overdue_after_the_grace(self):
        one = arbiter()
        one.add_app("a", now_s=0.0)
        grant(one, 0.0, a=gang(m1=1))
        (change,) = grant(one, 570.0)
        assert change.kind is LeaseChangeKind.EXPIRING
        assert one.overdue(629.0) == []
        assert [lease.state for lease in one.overdue(630.0)] == [LeaseState.EXPIRING]


class TestLostMachines:
    def arbiter(self):
        one = arbiter()
        for app in "ab":
            one.add_app(app, now_s=0.0)
        grant(one, 0.0, a=gang(m0=3), b=gang(m1=2))
        return one

    def test_its_leases_end_at_once_and_count_up_to_then(self):
        one = self.arbiter()
        changes = one.machine_lost("m1", now_s=100.0, reason="no heartbeat")
        assert reported(changes) == [("revoked", "b", "m1/0"), ("revoked", "b", "m1/1")]
        assert one.attained_gpu_s("b", 500.0) == 200.0
        assert one.attained_gpu_s("a", 500.0) == 1500.0
        one.validate()

    def test_reservations_on_a_lost_machine_cost_no_gpu_time(self):
        one = self.arbiter()
        grant(one, 570.0, a=gang(m1=2))
        one.machine_lost("m1", now_s=580.0, reason="no heartbeat")
        assert one.attained_gpu_s("a", 580.0) == 3 * 580.0
        assert one.table.reserved == {}
        one.validate()

    def test_available_gpus_exclude_lost_machines(self):
        one = self.arbiter()
        assert one.gpus_available == 6
        one.machine_lost("m1", now_s=100.0, reason="x")
        assert one.gpus_available == 4
        one.machine_back("m1")
        assert one.gpus_available == 6

    def test_it_stays_in_the_snapshot_with_nothing_to_offer(self):
        one = self.arbiter()
        one.machine_lost("m0", now_s=100.0, reason="x")
        snapshot, _ = one.begin_round(100.0)
        slots = {machine.machine_id: machine.free_slots for machine in snapshot.machines}
        assert slots == {"m0": (0, 0), "m1": (0,)}
        assert snapshot.standing("a").kept == Allocation()
        one.machine_back("m0")
        assert one.begin_round(101.0)[0].free == Allocation.of({"m0": 4})

    def test_gangs_on_a_machine_that_was_lost_meanwhile_are_dropped_whole(self):
        one = arbiter()
        for app in "ab":
            one.add_app(app, now_s=0.0)
        snapshot, _ = one.begin_round(0.0)
        one.machine_lost("m1", now_s=1.0, reason="x")
        decision = Decision(auction={"a": (gang(m0=1, m1=1), gang(m0=1)), "b": (gang(m1=1),)})
        changes = one.settle(RoundResult(snapshot=snapshot, decision=decision), now_s=2.0)
        assert reported(changes) == [("granted", "a", "m0/0")]
        one.validate()

    def test_a_renewable_lease_on_a_lost_machine_is_not_renewed(self):
        one = self.arbiter()
        snapshot, _ = one.begin_round(570.0)
        one.machine_lost("m1", now_s=571.0, reason="x")
        one.machine_back("m1")
        decision = Decision(auction={"b": (gang(m1=2),), "a": (gang(m0=3),)})
        changes = one.settle(RoundResult(snapshot=snapshot, decision=decision), now_s=572.0)
        granted = [change.lease.app_id for change in changes if change.kind is LeaseChangeKind.GRANTED]
        renewed = [change.lease.app_id for change in changes if change.kind is LeaseChangeKind.RENEWED]
        assert (granted, renewed) == (["b"] * 2, ["a"] * 3)
        one.validate()

    def test_an_unknown_machine_is_named(self):
        one = arbiter()
        with pytest.raises(UnknownNameError, match="'m1'"):
            one.machine_lost("m11", now_s=0.0, reason="x")
        with pytest.raises(UnknownNameError, match="m9"):
            one.machine_back("m9")


class Noted(Value, frozen=True):
    """Something that a policy remembers."""

    rounds: int


class TestMemory:
    def settled(self, one, rounds):
        snapshot, _ = one.begin_round(0.0)
        one.settle(RoundResult(snapshot=snapshot, decision=Decision(memory=Noted(rounds))), now_s=0.0)

    def test_the_next_round_finds_the_memory_of_the_last_decision(self):
        one = arbiter()
        assert one.begin_round(0.0)[0].memory is None
        self.settled(one, 1)
        assert one.begin_round(1.0)[0].memory == Noted(1)

    def test_an_undone_round_leaves_the_memory_as_it_was(self):
        one = arbiter()
        self.settled(one, 1)
        one.begin()
        self.settled(one, 2)
        one.undo()
        assert one.begin_round(1.0)[0].memory == Noted(1)

    def test_a_reduced_decision_keeps_its_memory(self):
        one = arbiter()
        one.add_app("a", now_s=0.0)
        decision = Decision(auction={"a": (gang(m0=1),), "gone": (gang(m0=1),)}, memory=Noted(3))
        assert one.what_stands(decision) == Decision(auction={"a": (gang(m0=1),)}, memory=Noted(3))


class TestBoundLeases:
    @pytest.fixture
    def one(self):
        one = arbiter()
        one.add_app("a", now_s=0.0)
        for job_id, machine in (("j0", "m0"), ("j1", "m1")):
            bound = replace(gang(**{machine: 1}), job_id=job_id)
            grant(one, 0.0, a=bound)
        return one

    def test_standing_names_the_jobs_and_their_machines(self, one):
        snapshot, _ = one.begin_round(10.0)
        assert snapshot.standing("a").bound == (("j0", "m0"), ("j1", "m1"))

    def test_they_are_prolonged_and_not_offered(self, one):
        snapshot, changes = one.begin_round(570.0)
        assert reported(changes) == [("renewed", "a", "m0/0"), ("renewed", "a", "m1/0")]
        assert {(change.lease.job_id, change.reason) for change in changes} == {
            ("j0", "its job runs until it ends"),
            ("j1", "its job runs until it ends"),
        }
        assert snapshot.free == Allocation.of({"m0": 3, "m1": 1})
        assert snapshot.standing("a").renewable == Allocation()

    def test_on_a_closed_gpu_it_expires(self, one):
        one.close_gpus([GpuId("m1", 0)])
        snapshot, changes = one.begin_round(570.0)
        assert reported(changes) == [("renewed", "a", "m0/0"), ("expiring", "a", "m1/0")]
        assert snapshot.standing("a").bound == (("j0", "m0"),)

    def test_released_one_is_gone(self, one):
        (lease,) = [lease for lease in one.table.of_app("a") if lease.job_id == "j1"]
        one.release([lease.lease_id], now_s=20.0, reason="its job ended")
        assert one.begin_round(30.0)[0].standing("a").bound == (("j0", "m0"),)

    def test_renewal_for_a_job_binds_the_lease(self):
        one = arbiter()
        one.add_app("a", now_s=0.0)
        grant(one, 0.0, a=gang(m1=1))
        changes = grant(one, 570.0, a=replace(gang(m1=1), job_id="j"))
        assert reported(changes) == [("renewed", "a", "m1/0")]
        assert one.begin_round(580.0)[0].standing("a").bound == (("j", "m1"),)


def test_an_app_that_ended_counts_for_its_user_while_an_older_app_is_active():
    anna = AppOwner(user="anna")
    one = arbiter()
    one.add_app("old", now_s=0.0, owner=anna)
    one.add_app("young", now_s=1.0, owner=anna, attained_gpu_s=30.0)
    one.end_app("young", now_s=2.0, reason="it ended")
    snapshot, _ = one.begin_round(3.0)
    assert snapshot.ended_gpu_s == {(ROOT, "anna"): 30.0}
    one.add_app("young", now_s=4.0, owner=anna, attained_gpu_s=30.0)
    assert one.begin_round(4.0)[0].ended_gpu_s.get((ROOT, "anna"), 0.0) == 0.0
    one.end_app("young", now_s=5.0, reason="it ended")
    one.end_app("old", now_s=6.0, reason="it ended")
    assert one.begin_round(7.0)[0].ended_gpu_s == {}


def test_each_app_that_ended_counts_while_one_is_active_that_is_not_younger():
    anna = AppOwner(user="anna")
    one = arbiter()
    for place, arrived_at_s in enumerate((0.0, 0.0, 1.0, 2.0)):
        one.add_app(f"a{place}", now_s=3.0, owner=anna, attained_gpu_s=10.0**place, arrived_at_s=arrived_at_s)
    for app_id in ("a3", "a2", "a1"):
        one.end_app(app_id, now_s=4.0, reason="it ended")
    assert one.begin_round(5.0)[0].ended_gpu_s == {(ROOT, "anna"): 1110.0}


def test_apps_that_ended_count_for_their_user_after_a_reload_of_the_queues():
    anna = AppOwner(user="anna", queue="vision")
    one = arbiter()
    one.add_app("old", now_s=0.0, owner=anna)
    one.add_app("young", now_s=1.0, owner=anna, attained_gpu_s=30.0)
    one.end_app("young", now_s=2.0, reason="it ended")
    vision = Queues(queues={ROOT: Queue(name=ROOT), "vision": Queue(name="vision", parent=ROOT)})
    one.requeue(vision, now_s=3.0)
    assert one.begin_round(4.0)[0].ended_gpu_s == {("vision", "anna"): 30.0}
    one.requeue(vision, now_s=5.0)
    one.end_app("old", now_s=6.0, reason="it ended")
    assert one.begin_round(7.0)[0].ended_gpu_s == {}, "no older app of the user is active"


def test_app_that_is_active_cannot_be_added_again():
    one = arbiter()
    one.add_app("a", now_s=0.0)
    with pytest.raises(InvariantError, match="active already"):
        one.add_app("a", now_s=1.0)
