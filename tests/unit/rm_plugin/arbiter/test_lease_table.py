"""The lease table by hand: grants, renewals in place, GPUs won from others, ends, replays."""

import pytest
from msgspec.structs import replace

from rm_plugin.arbiter.lease_table import LeaseTable
from themis.bids import PlacedGang
from themis.cluster import Allocation, Cluster, GpuId, Level, Machine
from themis.errors import InvariantError, UnknownNameError
from themis.leases import Lease, LeaseChangeKind, allocation_of
from themis.lifecycle import LeaseState

CLUSTER = Cluster(
    name="c",
    machines=(
        Machine(machine_id="m0", rack_id="r", slots=(2, 2)),
        Machine(machine_id="m1", rack_id="r", slots=(2,)),
    ),
)


def gang(counts, slot=None, pinned=False):
    level = Level.RACK if len(counts) > 1 else Level.MACHINE if slot is None else Level.SLOT
    return PlacedGang(gpus=Allocation.of(counts), level=level, slot=slot, pinned=pinned)


def settle(table, grants, renewable=(), now_s=0.0, expires_at_s=600.0, round_id=1):
    return table.settle(grants, renewable, now_s=now_s, end_s=lambda _: expires_at_s, round_id=round_id)


def settle_for(table, grants, lasts_s, now_s):
    """A round for leases that end within five seconds, whose grants last so long."""
    up = table.ending(now_s + 5.0)
    return table.settle(grants, up, now_s=now_s, end_s=lambda begins_s: begins_s + lasts_s, round_id=2)


def reported(changes):
    return [
        (change.kind.value.removeprefix("lease_"), change.lease.app_id, str(change.lease.gpu)) for change in changes
    ]


def ids(table, app_id):
    return [lease.lease_id for lease in table.of_app(app_id)]


class TestGrants:
    def test_free_gpus_are_granted_at_once(self):
        table = LeaseTable(CLUSTER)
        changes = settle(table, {"b": [gang({"m0": 1})], "a": [gang({"m0": 2}, slot=1), gang({"m1": 1})]})
        assert reported(changes) == [
            ("granted", "a", "m0/2"),
            ("granted", "a", "m0/3"),
            ("granted", "a", "m1/0"),
            ("granted", "b", "m0/0"),
        ]
        lease = table.live[GpuId("m1", 0)]
        assert (lease.granted_at_s, lease.expires_at_s, lease.state) == (0.0, 600.0, LeaseState.GRANTED)
        assert {change.round_id for change in changes} == {1}
        assert allocation_of(table.of_app("a")) == Allocation.of({"m0": 2, "m1": 1})
        table.validate()

    def test_granting_more_gpus_than_are_free_changes_nothing(self):
        table = LeaseTable(CLUSTER)
        settle(table, {"a": [gang({"m1": 1})]})
        before = dict(table.live)
        with pytest.raises(InvariantError):
            settle(table, {"b": [gang({"m0": 2}), gang({"m1": 2})]}, now_s=5.0)
        assert table.live == before
        assert table.reserved == {}

    def test_gangs_in_a_slot_are_given_before_those_that_take_any(self):
        table = LeaseTable(CLUSTER)
        settle(table, {"a": [gang({"m0": 1}, pinned=True)], "b": [gang({"m0": 2}, slot=0)]})
        assert {lease.gpu.index for lease in table.of_app("b")} == {0, 1}


class TestRenewal:
    def table(self):
        table = LeaseTable(CLUSTER)
        settle(table, {"a": [gang({"m0": 2}, slot=1)], "b": [gang({"m1": 2}, slot=0)]})
        return table

    def test_in_place_it_keeps_lease_and_gpu(self):
        table = self.table()
        up = [lease for lease in table.live.values() if lease.app_id == "a"]
        changes = settle(table, {"a": [gang({"m0": 2}, slot=0)]}, up, now_s=570.0, expires_at_s=1200.0, round_id=2)
        assert reported(changes) == [("renewed", "a", "m0/2"), ("renewed", "a", "m0/3")]
        for change, before in zip(changes, up, strict=True):
            assert change.lease.lease_id == before.lease_id
            assert (change.lease.expires_at_s, change.lease.renewals) == (1200.0, 1)
            assert change.lease.granted_at_s == before.granted_at_s

    def test_leases_without_renewal_expire_at_their_own_end(self):
        table = self.table()
        changes = settle(table, {"a": [gang({"m0": 1})]}, list(table.live.values()), now_s=570.0, expires_at_s=1200.0)
        assert reported(changes) == [
            ("renewed", "a", "m0/2"),
            ("expiring", "a", "m0/3"),
            ("expiring", "b", "m1/0"),
            ("expiring", "b", "m1/1"),
        ]
        assert table.live[GpuId("m1", 0)].expires_at_s == 600.0

    def test_gpus_won_from_another_are_reserved_until_given_back(self):
        table = self.table()
        held = ids(table, "b")
        changes = settle(table, {"a": [gang({"m1": 1})]}, [table.live[GpuId("m1", 0)], table.live[GpuId("m1", 1)]])
        assert reported(changes) == [
            ("reserved", "a", "m1/0"),
            ("expiring", "b", "m1/0"),
            ("expiring", "b", "m1/1"),
        ]
        table.validate()
        given = table.release(held, now_s=590.0, reason="its lease ended")
        assert reported(given) == [("released", "b", "m1/0"), ("granted", "a", "m1/0"), ("released", "b", "m1/1")]
        assert table.live[GpuId("m1", 0)].granted_at_s == 590.0
        assert table.reserved == {}
        assert GpuId("m1", 1) in table.free_gpus()

    def test_changes_are_ordered_reserved_granted_renewed_expiring(self):
        table = LeaseTable(CLUSTER)
        settle(table, {"a": [gang({"m0": 2}, slot=0)], "b": [gang({"m1": 2})]})
        changes = settle(table, {"a": [gang({"m0": 2}, slot=0), gang({"m0": 1, "m1": 1})]}, list(table.live.values()))
        kinds = [kind for kind, _, _ in reported(changes)]
        assert kinds == ["reserved", "granted", "renewed", "renewed", "expiring", "expiring"]

    def test_a_gpu_of_its_own_that_an_app_gets_in_the_place_of_others_is_renewed(self):
        table = LeaseTable(CLUSTER)
        mine, others = gang({"m0": 1}, slot=0), gang({"m0": 1}, slot=1)
        settle(table, {"a": [mine], "b": [others], "c": [mine]})
        # Slot 1 has one GPU to give: the gang takes the other one elsewhere, where only the app's own is up.
        changes = settle(table, {"a": [gang({"m0": 2}, slot=1)]}, [table.live[GpuId("m0", 0)]])
        assert reported(changes) == [("granted", "a", "m0/3"), ("renewed", "a", "m0/0")]

    def test_free_gpus_are_granted_before_leased_ones(self):
        table = self.table()
        changes = settle(table, {"b": [gang({"m0": 2})]}, list(table.live.values()))
        assert ("granted", "b", "m0/0") in reported(changes)
        assert not table.reserved

    def test_a_lease_that_is_not_up_any_more_is_left_alone(self):
        table = self.table()
        (stale,) = [lease for lease in table.live.values() if lease.gpu == GpuId("m1", 0)]
        table.release([stale.lease_id], now_s=1.0, reason="done")
        settle(table, {"c": [gang({"m1": 1})]}, now_s=2.0)
        changes = settle(table, {}, [stale], now_s=3.0)
        assert changes == []


class TestEnds:
    def test_replays_are_harmless(self):
        table = LeaseTable(CLUSTER)
        settle(table, {"a": [gang({"m1": 2})]})
        both = ids(table, "a")
        assert len(table.release([both[0], both[0]], now_s=1.0, reason="x")) == 1
        assert table.release([both[0], 99], now_s=2.0, reason="x") == []
        assert table.find(both[0]) is None
        assert table.find(both[1]) is not None

    def test_a_reservation_can_be_given_up_before_the_gpu_comes(self):
        table = LeaseTable(CLUSTER)
        settle(table, {"a": [gang({"m1": 1})]})
        settle(table, {"b": [gang({"m1": 2})]}, list(table.live.values()), now_s=570.0)
        (waiting,) = table.reserved.values()
        (change,) = table.revoke([waiting.lease_id], now_s=571.0, reason="gone")
        assert change.reserved
        assert change.kind is LeaseChangeKind.RELEASED
        assert reported(table.release(ids(table, "a"), now_s=572.0, reason="x")) == [("released", "a", "m1/0")]
        table.validate()

    def test_only_expiring_leases_are_overdue(self):
        table = LeaseTable(CLUSTER)
        settle(table, {"a": [gang({"m1": 2})]})
        assert table.overdue(1e9, 30.0) == []
        settle(table, {}, table.ending(600.0), now_s=570.0)
        assert table.overdue(629.9, 30.0) == []
        assert len(table.overdue(630.0, 30.0)) == 2
        assert reported(table.revoke(ids(table, "a"), now_s=630.0, reason="late"))[0][0] == "revoked"

    def test_next_end_is_the_earliest_expiry(self):
        table = LeaseTable(CLUSTER)
        assert table.next_end_s() is None
        settle(table, {"a": [gang({"m1": 1})]}, expires_at_s=600.0)
        settle(table, {"b": [gang({"m1": 1})]}, expires_at_s=300.0)
        assert table.next_end_s() == 300.0
        assert [lease.app_id for lease in table.ending(300.0)] == ["b"]
        settle(table, {}, table.ending(300.0), now_s=290.0)
        assert table.next_end_s() == 600.0

    def test_leases_of_a_gang_end_together_one_length_after_the_last_start(self):
        table = LeaseTable(CLUSTER)
        settle(table, {"a": [gang({"m0": 1}), gang({"m1": 1})]}, expires_at_s=600.0)
        settle(table, {"b": [gang({"m0": 2}, slot=1)]}, expires_at_s=603.0)
        grants = {"a": [gang({"m0": 1, "m1": 1})], "c": [gang({"m1": 1}), gang({"m0": 2}, slot=1)]}
        settle_for(table, grants, 600.0, now_s=598.0)
        assert {lease.expires_at_s for lease in table.of_app("a")} == {1200.0}, "renewed: from end to end"
        ends_s = {str(lease.gpu): lease.expires_at_s for lease in table.of_app("c")}
        assert ends_s == {"m0/1": 1203.0, "m0/2": 1203.0, "m1/1": 1198.0}, "beside one won from b, and free"

    def test_a_free_gpu_of_a_gang_lasts_as_long_as_those_that_it_renews(self):
        table = LeaseTable(CLUSTER)
        settle(table, {"a": [gang({"m1": 1})]}, expires_at_s=600.0)
        settle_for(table, {"a": [gang({"m1": 2})]}, 600.0, now_s=597.0)
        assert [lease.expires_at_s for lease in table.of_app("a")] == [1200.0, 1200.0]

    def test_an_overdue_renewal_starts_now(self):
        table = LeaseTable(CLUSTER)
        settle(table, {"a": [gang({"m1": 1})]}, expires_at_s=600.0)
        settle_for(table, {"a": [gang({"m1": 1})]}, 600.0, now_s=700.0)
        assert table.of_app("a")[0].expires_at_s == 1300.0

    def test_prolonging_moves_the_end_only(self):
        table = LeaseTable(CLUSTER)
        settle(table, {"a": [gang({"m1": 1})]})
        (lease,) = table.of_app("a")
        (change,) = table.prolong([lease], now_s=570.0, end_s=lambda _: 900.0, reason="its app master is unavailable")
        assert change.kind is LeaseChangeKind.RENEWED
        assert table.of_app("a")[0].expires_at_s == 900.0
        assert table.of_app("a")[0].lease_id == lease.lease_id

    def test_prolonged_lease_goes_on_from_its_end(self):
        table = LeaseTable(CLUSTER)
        settle(table, {"a": [gang({"m1": 1})]}, expires_at_s=600.0)
        table.prolong(table.of_app("a"), now_s=570.0, end_s=lambda begins_s: begins_s + 100.0, reason="")
        assert table.of_app("a")[0].expires_at_s == 700.0

    def test_leases_end_in_their_order_and_each_once(self):
        table = LeaseTable(CLUSTER)
        settle(table, {"a": [gang({"m1": 2})]})
        changes = table.release([2, 1, 2], now_s=1.0, reason="done")
        assert [change.lease.lease_id for change in changes] == [1, 2]


class TestOffer:
    def test_free_and_renewable_gpus_by_slot(self):
        table = LeaseTable(CLUSTER)
        settle(table, {"a": [gang({"m0": 3})], "b": [gang({"m1": 1})]})
        up = [lease for lease in table.of_app("a") if lease.gpu.index == 0]
        slots = {machine.machine_id: machine.free_slots for machine in table.offered_machines(up)}
        assert slots == {"m0": (1, 1), "m1": (1,)}


class TestRestored:
    def lease(self, lease_id, index, state=LeaseState.GRANTED, app="a", machine="m1"):
        return Lease(
            lease_id=lease_id, gpu=GpuId(machine, index), app_id=app, granted_at_s=0, expires_at_s=9, state=state
        )

    def test_ids_go_on_after_the_highest(self):
        table = LeaseTable(CLUSTER, [self.lease(41, 0)], next_lease_id=7)
        (change,) = settle(table, {"b": [gang({"m1": 1})]})
        assert change.lease.lease_id == 42

    def test_the_counter_of_the_store_counts_too(self):
        table = LeaseTable(CLUSTER, [self.lease(3, 0)], next_lease_id=7)
        (change,) = settle(table, {"b": [gang({"m1": 1})]})
        assert change.lease.lease_id == 7

    @pytest.mark.parametrize(
        "leases",
        [
            [(1, 0, LeaseState.RESERVED)],
            [(1, 0, LeaseState.GRANTED), (2, 0, LeaseState.RESERVED)],
            [(1, 0, LeaseState.GRANTED), (1, 1, LeaseState.GRANTED)],
            [(1, 7, LeaseState.GRANTED)],
            [(1, 0, LeaseState.RELEASED)],
        ],
        ids=["reserved alone", "reserved beside granted", "one id twice", "no such GPU", "ended"],
    )
    def test_a_broken_table_is_found(self, leases):
        table = LeaseTable(CLUSTER, [self.lease(*each) for each in leases])
        with pytest.raises(InvariantError):
            table.validate()

    def test_two_leases_on_one_gpu_are_refused(self):
        with pytest.raises(InvariantError, match="m1/0"):
            LeaseTable(CLUSTER, [self.lease(1, 0), self.lease(2, 0, app="b")])


class TestLostMachines:
    def table(self):
        """a on all of m0, b on m1; of m1's GPUs a has won one and waits for it."""
        table = LeaseTable(CLUSTER)
        settle(table, {"a": [gang({"m0": 4})], "b": [gang({"m1": 2})]})
        up = [lease for lease in table.live.values() if lease.gpu == GpuId("m1", 0)]
        settle(table, {"a": [gang({"m1": 1})]}, up, now_s=570.0, expires_at_s=1200.0, round_id=2)
        return table

    def test_leases_are_revoked_and_reservations_released_not_granted(self):
        table = self.table()
        assert reported(table.lose("m1", now_s=575.0, reason="no heartbeat")) == [
            ("released", "a", "m1/0"),
            ("revoked", "b", "m1/0"),
            ("revoked", "b", "m1/1"),
        ]
        assert table.reserved == {}
        assert {gpu.machine_id for gpu in table.live} == {"m0"}
        table.validate()

    def test_reservations_never_had_the_gpu(self):
        changes = self.table().lose("m1", now_s=575.0, reason="no heartbeat")
        assert [change.reserved for change in changes] == [True, False, False]
        assert {change.reason for change in changes} == {"no heartbeat"}

    def test_it_is_in_no_offer_and_has_no_free_gpu_until_it_is_back(self):
        table = LeaseTable(CLUSTER)
        assert table.lose("m0", now_s=1.0, reason="x") == []
        assert (table.lost, table.gpus_available) == ({"m0"}, 2)
        assert table.free_gpus() == [GpuId("m1", 0), GpuId("m1", 1)]
        slots = {machine.machine_id: machine.free_slots for machine in table.offered_machines([])}
        assert slots == {"m0": (0, 0), "m1": (2,)}
        table.validate()
        table.regain("m0")
        assert (table.lost, table.gpus_available) == (frozenset(), 6)
        assert table.free_gpus() == list(CLUSTER.gpu_ids())
        table.validate()

    def test_nothing_can_be_granted_there(self):
        table = LeaseTable(CLUSTER)
        table.lose("m1", now_s=1.0, reason="x")
        with pytest.raises(InvariantError, match="more GPUs"):
            settle(table, {"a": [gang({"m1": 1})]})

    def test_repeated_loss_and_needless_return_change_nothing(self):
        table = self.table()
        table.lose("m1", now_s=575.0, reason="x")
        assert table.lose("m1", now_s=576.0, reason="x") == []
        table.regain("m0")
        assert len(table.live) == 4

    def test_it_comes_back_empty(self):
        table = self.table()
        table.lose("m1", now_s=575.0, reason="x")
        table.regain("m1")
        assert table.free_gpus() == [GpuId("m1", 0), GpuId("m1", 1)]

    def test_unknown_machines_are_named(self):
        for move in (lambda table: table.lose("m2", now_s=0.0, reason="x"), lambda table: table.regain("m2")):
            with pytest.raises(UnknownNameError, match="m2"):
                move(LeaseTable(CLUSTER))
        with pytest.raises(UnknownNameError, match="m2"):
            LeaseTable(CLUSTER, lost=["m2"])

    def test_a_lease_on_a_lost_machine_is_a_defect(self):
        lease = Lease(lease_id=1, gpu=GpuId("m1", 0), app_id="a", granted_at_s=0, expires_at_s=9)
        with pytest.raises(InvariantError, match="lost"):
            LeaseTable(CLUSTER, [lease], lost=["m1"]).validate()

    def test_machine_that_was_lost_before_stays_lost_after_an_undo(self):
        table = LeaseTable(CLUSTER)
        table.lose("m1", now_s=0.0, reason="gone")
        table.begin()
        table.lose("m1", now_s=1.0, reason="gone")
        table.undo()
        assert table.lost == {"m1"}


class TestIndices:
    """What the table keeps beside its leases is checked against them."""

    def table(self):
        table = LeaseTable(CLUSTER)
        settle(table, {"a": [gang({"m0": 2})], "b": [gang({"m1": 1})]})
        table.offered_machines([])
        table.validate()
        return table

    def test_a_lease_without_its_id_entry(self):
        table = self.table()
        del table._by_id[1]
        with pytest.raises(InvariantError, match="by id"):
            table.validate()

    def test_a_lease_of_another_app(self):
        table = self.table()
        table._live._by_app["b"] = {}
        with pytest.raises(InvariantError, match="index"):
            table.validate()

    def test_a_lease_under_two_apps(self):
        table = self.table()
        table._live._by_app["c"] = dict(table._live._by_app["b"])
        with pytest.raises(InvariantError, match="by app"):
            table.validate()

    def test_a_lease_that_its_app_does_not_hold(self):
        table = self.table()
        table._live._by_app["a"].popitem()
        with pytest.raises(InvariantError, match="index"):
            table.validate()

    def test_an_older_lease_in_an_index(self):
        for index in (lambda table: table._live._by_gpu, lambda table: table._live._by_app["b"]):
            table = self.table()
            (lease,) = table.live_of("b")
            index(table)[lease.gpu] = replace(lease, expires_at_s=1.0)
            with pytest.raises(InvariantError, match="index"):
                table.validate()

    def test_a_lease_that_is_noted_as_expiring_and_goes_on(self):
        table = self.table()
        (lease,) = table.live_of("b")
        table._live._expiring[lease.gpu] = lease
        with pytest.raises(InvariantError, match="expiring"):
            table.validate()

    def test_a_lease_under_a_gpu_of_another(self):
        table = self.table()
        (lease,) = table.live_of("b")
        for index in (table._live._by_gpu, table._live._by_app["b"]):
            del index[lease.gpu]
            index[GpuId("m1", 1)] = lease
        with pytest.raises(InvariantError, match="not its own"):
            table.validate()

    def test_kept_gpus_that_the_app_does_not_hold(self):
        table = self.table()
        assert table.kept_by("a") == Allocation.of({"m0": 2})
        table.validate()
        table._kept["a"] = Allocation.of({"m0": 1})
        with pytest.raises(InvariantError, match="cached GPUs of an app differ"):
            table.validate()

    def test_a_lease_that_is_forgotten_where_free_gpus_are_counted(self):
        table = self.table()
        table._free.give_back(GpuId("m0", 0))
        with pytest.raises(InvariantError, match="leased"):
            table.validate()

    def test_an_available_machine_without_its_gpus(self):
        table = self.table()
        table._free._available["m1"] = 0
        with pytest.raises(InvariantError, match="may be leased differs from the cluster"):
            table.validate()

    def test_an_indexed_end_without_a_lease(self):
        table = self.table()
        table._live._ends[1.0] = 1
        with pytest.raises(InvariantError, match="index"):
            table.validate()

    def test_a_free_gpu_that_is_leased(self):
        table = self.table()
        table._free._free["m1"] = 0b11
        with pytest.raises(InvariantError, match="free"):
            table.validate()

    def test_free_gpus_in_another_order_than_machines(self):
        table = LeaseTable(CLUSTER)
        table._free._free = dict(reversed(table._free._free.items()))
        with pytest.raises(InvariantError, match="may be leased differs from the cluster"):
            table.validate()

    def test_an_offer_of_other_gpus_than_are_free(self):
        table = self.table()
        table._free._offers["m1"] = 0b11, LeaseTable(CLUSTER).offered_machines([])[1]
        with pytest.raises(InvariantError, match="offer"):
            table.validate()
        # A machine that is known to have changed is computed again before its next use.
        table._free._outdated.add("m1")
        table.validate()
        assert table.offered_machines([])[1].free == 1

    def test_an_old_offer(self):
        table = self.table()
        table._free._offers["m1"] = 0b10, LeaseTable(CLUSTER).offered_machines([])[1]
        with pytest.raises(InvariantError, match="offer"):
            table.validate()


def _forget_id(table, lease):
    del table._by_id[lease.lease_id]
    table._by_id[99] = lease


def _forget_app(table, lease):
    table._live._by_app[lease.app_id] = {GpuId("m5", 0): lease}


def _under_two_apps(table, lease):
    table._live._by_app["d"] = {lease.gpu: lease}


def _older(table, lease):
    table._live._by_gpu[lease.gpu] = replace(lease, expires_at_s=1.0)


def _ended(table, lease):
    over = replace(lease, state=LeaseState.RELEASED)
    for index in (table._live._by_gpu, table._live._by_app[lease.app_id]):
        index[lease.gpu] = over
    table._by_id[lease.lease_id] = over


def _of_another_gpu(table, lease):
    table._live._by_gpu[lease.gpu] = table._live._by_gpu[GpuId("m0", 0)]


def _no_end(table, lease):
    del table._live._ends[lease.expires_at_s]


def _free(table, lease):
    table._free._free[lease.gpu.machine_id] = 0b11


def _not_leased(table, lease):
    table._free.give_back(lease.gpu)


def _lost(table, lease):
    table._free._lost.add(lease.gpu.machine_id)


def _one_too_many(table, lease):
    table._by_id[99] = lease


def _waited_for(table, lease):
    table._reserved.put(replace(lease, lease_id=99, app_id="d", state=LeaseState.RESERVED))
    table._by_id[99] = table.reserved[lease.gpu]


def _kept_otherwise(table, lease):
    table._kept[lease.app_id] = Allocation.of({"m5": 2})
    table._unchecked_apps.add(lease.app_id)


def _another_offer(table, lease):
    table._free._offers[lease.gpu.machine_id] = 0b10, LeaseTable(CLUSTER).offered_machines([])[0]


def _not_there(table, lease):
    table._free._available[lease.gpu.machine_id] = table._free._free[lease.gpu.machine_id] = 0


def _on_a_machine_that_nobody_knows(table, lease):
    table._put(replace(lease, lease_id=98, gpu=GpuId("m9", 0)))


DEFECTS = (
    _kept_otherwise,
    _another_offer,
    _not_there,
    _on_a_machine_that_nobody_knows,
    _forget_id,
    _forget_app,
    _under_two_apps,
    _older,
    _ended,
    _of_another_gpu,
    _no_end,
    _free,
    _not_leased,
    _lost,
    _one_too_many,
    _waited_for,
)


class TestChanges:
    """Where few machines changed only these are looked at."""

    CLUSTER = Cluster(name="c", machines=tuple(Machine(machine_id=f"m{n}", rack_id="r0", slots=(2,)) for n in range(6)))

    def table(self):
        """Of a table that was checked whole the lease of `b` on `m1` is renewed, and that of `c` on `m2` is new."""
        table = LeaseTable(self.CLUSTER)
        settle(table, {"a": [gang({"m0": 2})], "b": [gang({"m1": 1})]})
        table.validate()
        settle(table, {"b": [gang({"m1": 1})], "c": [gang({"m2": 1})]}, list(table.live_of("b")), now_s=10.0)
        return table

    def test_nothing_is_wrong(self):
        table = self.table()
        table.validate_changes()
        table.validate()

    @pytest.mark.parametrize("app_id", ["b", "c"])
    def test_defects_of_changed_leases_are_found(self, app_id):
        for defect in DEFECTS:
            table = self.table()
            (lease,) = table.live_of(app_id)
            defect(table, lease)
            with pytest.raises(InvariantError):
                table.validate_changes()

    def test_defects_of_unchanged_leases_are_found_by_the_full_check(self):
        table = self.table()
        table._live._by_gpu[GpuId("m0", 0)] = replace(table._live._by_gpu[GpuId("m0", 0)], expires_at_s=1.0)
        table.validate_changes()
        with pytest.raises(InvariantError):
            table.validate()

    def test_all_machines_are_checked_if_most_changed(self):
        table = self.table()
        settle(table, {name: [gang({f"m{number}": 1})] for number, name in ((3, "d"), (4, "e"))}, now_s=20.0)
        table._live._by_gpu[GpuId("m0", 0)] = replace(table._live._by_gpu[GpuId("m0", 0)], expires_at_s=1.0)
        with pytest.raises(InvariantError):
            table.validate_changes()

    def test_lost_returned_and_closed_machines_are_checked(self):
        for change in (
            lambda table: table.lose("m5", now_s=20.0, reason="x"),
            lambda table: table.regain("m5"),
            lambda table: table.close([GpuId("m5", 0)]),
        ):
            table = self.table()
            table.validate()
            change(table)
            table._free._free["m5"] = 0b1 << 5
            with pytest.raises(InvariantError):
                table.validate_changes()
