"""The lease table under any order of rounds, ends and lost machines: invariants hold, rounds give what was decided."""

from collections import Counter

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from rm_plugin.arbiter.lease_table import LeaseTable
from themis.bids import PlacedGang
from themis.cluster import Allocation, Cluster, Level, Machine
from themis.errors import InvariantError
from themis.leases import LeaseChangeKind, allocation_of
from themis.lifecycle import LEASE_LIFECYCLE, LeaseState
from themis.placement.free_capacity import FreeCapacity

CLUSTER = Cluster(
    name="c",
    machines=(
        Machine(machine_id="m0", rack_id="r0", slots=(2, 2)),
        Machine(machine_id="m1", rack_id="r0", slots=(2,)),
        Machine(machine_id="m2", rack_id="r1", slots=(1, 3)),
    ),
)
APPS = ("a", "b", "c")
ENDED = (LeaseChangeKind.RELEASED, LeaseChangeKind.REVOKED)


@st.composite
def decisions(draw, machines, apps=APPS):
    """Gangs by app that these machines hold together: some in slots, some pinned, some over machines."""
    capacity = FreeCapacity(machines)
    grants = {}
    for _ in range(draw(st.integers(0, 5))):
        app = draw(st.sampled_from(apps))
        free = {name: capacity.free(name) for name in capacity.machine_ids if capacity.free(name)}
        if not free:
            break
        parts = {}
        for name in draw(st.lists(st.sampled_from(sorted(free)), min_size=1, max_size=2, unique=True)):
            parts[name] = draw(st.integers(1, free[name]))
        gang = capacity.place(parts)
        if draw(st.booleans()):
            gang = PlacedGang(gpus=gang.gpus, level=gang.level, pinned=True)
        grants.setdefault(app, []).append(gang)
    return grants


class LeaseTableMachine(RuleBasedStateMachine):
    @initialize(now_s=st.integers(0, 100))
    def start(self, now_s):
        self.table = LeaseTable(CLUSTER)
        self.now_s = float(now_s)
        self.round_id = 0
        self.states = {}
        self.used_ids = set()
        self.lost = set()

    # ---- what happens ----

    @rule(data=st.data(), wait_s=st.integers(0, 300), lease_s=st.sampled_from([300, 600]))
    def play_round(self, data, wait_s, lease_s):
        self.now_s += wait_s
        self.round_id += 1
        granted = [lease for lease in self.table.live.values() if lease.state is LeaseState.GRANTED]
        up = data.draw(st.lists(st.sampled_from(granted), unique=True) if granted else st.just([]))
        grants = data.draw(decisions(self.table.offered_machines(up)))
        before = {app: allocation_of(self._not_up(app, up)) for app in APPS}
        held = {lease.gpu: lease for lease in up}
        changes = self.table.settle(
            grants, up, now_s=self.now_s, end_s=lambda begins_s: begins_s + lease_s, round_id=self.round_id
        )
        self._watch(changes)
        for app in APPS:
            won = sum((gang.gpus for gang in grants.get(app, ())), Allocation())
            given = [lease for lease in self.table.of_app(app) if lease.state is not LeaseState.EXPIRING]
            assert allocation_of(given) == before[app] + won
        self._check_round(changes, held, up)
        self._check_ends(changes, held, lease_s)

    def _check_ends(self, changes, held, lease_s):
        """Each lasts a whole lease from where it begins, but for the lead of the last of its gang's beginnings."""
        last_s = max([self.now_s, *(lease.expires_at_s for lease in held.values())])
        for change in changes:
            if change.kind in (LeaseChangeKind.GRANTED, LeaseChangeKind.RESERVED, LeaseChangeKind.RENEWED):
                follows = held.get(change.lease.gpu)
                begins_s = self.now_s if follows is None else max(self.now_s, follows.expires_at_s)
                assert begins_s + lease_s <= change.lease.expires_at_s <= last_s + lease_s

    def _not_up(self, app, up):
        gone = {lease.lease_id for lease in up}
        return [
            lease
            for lease in self.table.of_app(app)
            if lease.lease_id not in gone and lease.state is not LeaseState.EXPIRING
        ]

    def _check_round(self, changes, held, up):
        reported = Counter(change.kind for change in changes)
        kept = reported[LeaseChangeKind.RENEWED] + reported[LeaseChangeKind.EXPIRING]
        assert kept == len(up)
        for change in changes:
            lease = change.lease
            if change.kind is LeaseChangeKind.RENEWED:
                assert held[lease.gpu].lease_id == lease.lease_id
                assert held[lease.gpu].app_id == lease.app_id
            if change.kind is LeaseChangeKind.RESERVED:
                assert held[lease.gpu].app_id != lease.app_id, "an app waits for a GPU that it is losing itself"

    @rule(data=st.data(), force=st.booleans(), wait_s=st.integers(0, 50))
    def end_some(self, data, force, wait_s):
        self.now_s += wait_s
        known = sorted(self.states) or [1]
        ids = data.draw(st.lists(st.sampled_from(known), max_size=4))
        waiting = {lease.gpu: lease for lease in self.table.reserved.values()}
        end = self.table.revoke if force else self.table.release
        changes = end(ids, now_s=self.now_s, reason="test")
        self._watch(changes)
        ended = {change.lease.lease_id for change in changes if change.kind in ENDED}
        assert ended == {lease_id for lease_id in ids if lease_id in ended}
        for lease_id in ids:
            assert self.table.find(lease_id) is None
        for change in changes:
            if change.kind is LeaseChangeKind.GRANTED:
                assert waiting[change.lease.gpu].lease_id == change.lease.lease_id
                assert change.lease.granted_at_s == self.now_s

    @rule(data=st.data(), more_s=st.integers(0, 500))
    def prolong_some(self, data, more_s):
        granted = [lease for lease in self.table.live.values() if lease.state is LeaseState.GRANTED]
        some = data.draw(st.lists(st.sampled_from(granted), unique=True) if granted else st.just([]))
        before = {gpu: lease.lease_id for gpu, lease in self.table.live.items()}
        self._watch(self.table.prolong(some, now_s=self.now_s, end_s=lambda begins_s: begins_s + more_s, reason="away"))
        assert {gpu: lease.lease_id for gpu, lease in self.table.live.items()} == before

    @rule(data=st.data())
    def a_decision_that_is_too_large_changes_nothing(self, data):
        machine = data.draw(st.sampled_from(CLUSTER.machines))
        # A lost machine has none to offer, so a single GPU is too many there.
        offered = {each.machine_id: each.free for each in self.table.offered_machines([])}
        gang = PlacedGang(
            gpus=Allocation.of({machine.machine_id: offered[machine.machine_id] + 1}),
            level=Level.MACHINE,
        )
        before = (dict(self.table.live), dict(self.table.reserved))
        with pytest.raises(InvariantError):
            self.table.settle({"a": [gang]}, [], now_s=self.now_s, end_s=lambda begins_s: begins_s + 1, round_id=99)
        assert (dict(self.table.live), dict(self.table.reserved)) == before

    @rule(data=st.data(), wait_s=st.integers(0, 50))
    def lose_a_machine(self, data, wait_s):
        self.now_s += wait_s
        name = data.draw(st.sampled_from(CLUSTER.machines)).machine_id
        live = {lease.lease_id for lease in self.table.live.values() if lease.gpu.machine_id == name}
        waiting = {lease.lease_id for lease in self.table.reserved.values() if lease.gpu.machine_id == name}
        elsewhere = [lease for lease in self.table.live.values() if lease.gpu.machine_id != name]
        changes = self.table.lose(name, now_s=self.now_s, reason="test")
        self._watch(changes)
        self.lost.add(name)
        assert {change.lease.lease_id for change in changes if change.kind is LeaseChangeKind.REVOKED} == live
        assert {change.lease.lease_id for change in changes if change.kind is LeaseChangeKind.RELEASED} == waiting
        assert all(change.reserved for change in changes if change.kind is LeaseChangeKind.RELEASED)
        assert len(changes) == len(live) + len(waiting)
        assert list(self.table.live.values()) == elsewhere

    @precondition(lambda self: self.lost)
    @rule(data=st.data())
    def a_machine_comes_back(self, data):
        name = data.draw(st.sampled_from(sorted(self.lost)))
        before = dict(self.table.live)
        self.table.regain(name)
        self.lost.discard(name)
        assert dict(self.table.live) == before
        assert set(CLUSTER.gpus_of(name)) <= set(self.table.free_gpus())

    @rule(data=st.data(), lease_s=st.sampled_from([300, 600]))
    def undo_some_changes(self, data, lease_s):
        """A round, ends and a lost machine whose write failed leave no trace, and lease ids start where they did."""
        table, now_s = self.table, self.now_s
        before = (dict(table.live), dict(table.reserved), table.lost, table.free_gpus(), table._next_id)
        table.begin()
        granted = [lease for lease in table.live.values() if lease.state is LeaseState.GRANTED]
        up = data.draw(st.lists(st.sampled_from(granted), unique=True) if granted else st.just([]))
        grants = data.draw(decisions(table.offered_machines(up)))
        table.settle(grants, up, now_s=now_s, end_s=lambda begins_s: begins_s + lease_s, round_id=self.round_id)
        ids = [lease.lease_id for lease in (*table.live.values(), *table.reserved.values())]
        table.release(data.draw(st.lists(st.sampled_from(ids)) if ids else st.just([])), now_s=now_s, reason="test")
        if data.draw(st.booleans()):
            table.lose(data.draw(st.sampled_from(CLUSTER.machines)).machine_id, now_s=now_s, reason="test")
        table.validate()
        table.undo()
        assert (dict(table.live), dict(table.reserved), table.lost, table.free_gpus(), table._next_id) == before

    @rule()
    def restart(self):
        """A restarted ResourceManager finds the same table in its store."""
        leases = [*self.table.live.values(), *self.table.reserved.values()]
        next_id = max(self.used_ids, default=0) + 1
        again = LeaseTable(CLUSTER, leases, next_lease_id=next_id, lost=self.lost)
        assert (dict(again.live), dict(again.reserved)) == (dict(self.table.live), dict(self.table.reserved))
        self.table = again

    # ---- what must hold ----

    def _watch(self, changes):
        """Every change is a step of the lifecycle, and new leases have new ids."""
        for change in changes:
            lease = change.lease
            old = self.states.get(lease.lease_id)
            if old is None:
                assert lease.lease_id not in self.used_ids, "a lease id came back"
                assert lease.state in (LeaseState.GRANTED, LeaseState.RESERVED)
                self.used_ids.add(lease.lease_id)
            else:
                assert LEASE_LIFECYCLE.allows(old, lease.state), (old, lease.state)
            self.states[lease.lease_id] = lease.state

    @invariant()
    def the_table_is_sound(self):
        if not hasattr(self, "table"):
            return
        self.table.validate_changes()
        self.table.validate()
        live = self.table.live
        gone = {gpu for name in self.lost for gpu in CLUSTER.gpus_of(name)}
        assert self.table.lost == self.lost
        assert self.table.gpus_available == CLUSTER.gpus - len(gone)
        assert not gone & {*live, *self.table.reserved}
        assert set(live) | set(self.table.free_gpus()) == set(CLUSTER.gpu_ids()) - gone
        offered = self.table.offered_machines(self.table.ending(self.now_s + 300))
        assert [each.machine_id for each in offered] == [each.machine_id for each in CLUSTER.machines]
        assert not any(each.free for each in offered if each.machine_id in self.lost)
        self._offers_are_of_free_and_ending_gpus(offered)
        self._the_indices_tell_what_the_leases_say()

    def _offers_are_of_free_and_ending_gpus(self, offered):
        there = Counter()
        for gpu in {*self.table.free_gpus(), *(lease.gpu for lease in self.table.ending(self.now_s + 300))}:
            there[gpu.machine_id, CLUSTER.machine(gpu.machine_id).slot_of(gpu.index)] += 1
        for each in offered:
            assert each.free_slots == tuple(there[each.machine_id, slot] for slot in range(len(each.free_slots)))

    def _the_indices_tell_what_the_leases_say(self):
        """Each answer, written out by looking at all leases."""
        live, reserved = self.table.live.values(), self.table.reserved.values()
        granted = [lease for lease in live if lease.state is LeaseState.GRANTED]
        assert self.table.next_end_s() == min((lease.expires_at_s for lease in granted), default=None)
        for grace_s in (0.0, 100.0):
            late = [lease for lease in live if lease.state is LeaseState.EXPIRING]
            late = {lease.lease_id for lease in late if lease.expires_at_s + grace_s <= self.now_s}
            assert {lease.lease_id for lease in self.table.overdue(self.now_s, grace_s)} == late
        assert self.table.has_free_gpus == bool(self.table.free_gpus())
        soon_s = self.now_s + 300
        assert self.table.ending(soon_s) == [lease for lease in granted if lease.expires_at_s <= soon_s]
        assert set(self.table.holders) == {lease.app_id for lease in live}
        for app in APPS:
            assert list(self.table.live_of(app)) == [lease for lease in live if lease.app_id == app]
            mine = [lease for lease in (*live, *reserved) if lease.app_id == app]
            assert self.table.holds(app) == bool(mine)
            assert self.table.of_app(app) == sorted(mine, key=lambda lease: (lease.gpu, lease.lease_id))
            kept = [lease.gpu.machine_id for lease in mine if lease.state is not LeaseState.EXPIRING]
            assert self.table.kept_by(app) == Allocation.of(Counter(kept))
        for lease in (*live, *reserved):
            assert self.table.find(lease.lease_id) is lease

    @invariant()
    def nothing_is_lost_on_the_way(self):
        if not hasattr(self, "table"):
            return
        live = self.table.live
        assert not set(live) & set(self.table.free_gpus())
        for gpu, lease in live.items():
            assert lease.gpu == gpu
            assert lease.state in (LeaseState.GRANTED, LeaseState.EXPIRING)
        for gpu in self.table.reserved:
            assert live[gpu].state is LeaseState.EXPIRING
        assert sum(len(self.table.of_app(app)) for app in APPS) == len(live) + len(self.table.reserved)
        reported = {lease_id for lease_id, state in self.states.items() if not LEASE_LIFECYCLE.is_final(state)}
        there = {lease.lease_id for lease in (*live.values(), *self.table.reserved.values())}
        assert reported == there, "the table differs from what it reported"


LeaseTableMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=20)
TestLeaseTable = LeaseTableMachine.TestCase
