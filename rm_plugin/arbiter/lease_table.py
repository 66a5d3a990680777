"""The lease table: who holds which GPU until when. Pure state; every method returns the changes that it made.

A GPU has at most one live lease (GRANTED or EXPIRING). Beside an EXPIRING one it may have a RESERVED lease: the GPU
is won by another app, whose lease is granted at the moment that the former holder gives the GPU back.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from rm_plugin.arbiter.gpu_choice import choose_gpus
from themis.bids import FreeMachine, PlacedGang
from themis.cluster import Allocation, Cluster, GpuId, Machine
from themis.errors import InvariantError
from themis.leases import Lease, LeaseChange, LeaseChangeKind
from themis.lifecycle import LEASE_LIFECYCLE, LeaseState


class LeaseTable:
    """Live and reserved leases of a cluster."""

    def __init__(self, cluster: Cluster, leases: Iterable[Lease] = (), next_lease_id: int = 1) -> None:
        self._cluster = cluster
        self._live: dict[GpuId, Lease] = {}
        self._reserved: dict[GpuId, Lease] = {}
        self._next_id = next_lease_id
        for lease in leases:
            table = self._reserved if lease.state is LeaseState.RESERVED else self._live
            if lease.gpu in table:
                raise InvariantError("two leases hold one GPU", value=str(lease.gpu))
            table[lease.gpu] = lease
            self._next_id = max(self._next_id, lease.lease_id + 1)

    # ---- reading ----

    @property
    def live(self) -> Mapping[GpuId, Lease]:
        """Live leases by GPU."""
        return self._live

    @property
    def reserved(self) -> Mapping[GpuId, Lease]:
        """Reserved leases by GPU."""
        return self._reserved

    def of_app(self, app_id: str) -> list[Lease]:
        """Every lease of an app, live and reserved, by GPU."""
        mine = [lease for lease in (*self._live.values(), *self._reserved.values()) if lease.app_id == app_id]
        return sorted(mine, key=lambda lease: (lease.gpu, lease.lease_id))

    def find(self, lease_id: int) -> Lease | None:
        """The live or reserved lease of this id, or None when it has ended."""
        leases = (*self._live.values(), *self._reserved.values())
        return next((lease for lease in leases if lease.lease_id == lease_id), None)

    def free_gpus(self) -> list[GpuId]:
        """GPUs without a live lease, machine by machine."""
        return [gpu for gpu in self._cluster.gpu_ids() if gpu not in self._live]

    def ending(self, until_s: float) -> list[Lease]:
        """GRANTED leases that end by a time: up for renewal."""
        return [
            lease
            for lease in self._live.values()
            if lease.state is LeaseState.GRANTED and lease.expires_at_s <= until_s
        ]

    def next_end_s(self) -> float | None:
        """When the first GRANTED lease ends."""
        ends = [lease.expires_at_s for lease in self._live.values() if lease.state is LeaseState.GRANTED]
        return min(ends, default=None)

    def overdue(self, now_s: float, grace_s: float) -> list[Lease]:
        """EXPIRING leases whose holder has not given the GPU back `grace_s` seconds past their end."""
        return [
            lease
            for lease in self._live.values()
            if lease.state is LeaseState.EXPIRING and lease.expires_at_s + grace_s <= now_s
        ]

    def offered_machines(self, renewable: Iterable[Lease]) -> tuple[FreeMachine, ...]:
        """Every machine with its GPUs to offer by slot: free ones and those of leases up for renewal."""
        offered = {*self.free_gpus(), *(lease.gpu for lease in renewable)}
        machines = []
        for machine in self._cluster.machines:
            slots = [0] * len(machine.slots)
            for index in range(machine.gpus):
                if GpuId(machine.machine_id, index) in offered:
                    slots[machine.slot_of(index)] += 1
            machines.append(
                FreeMachine(machine_id=machine.machine_id, rack_id=machine.rack_id, free_slots=tuple(slots))
            )
        return tuple(machines)

    # ---- changing ----

    def settle(
        self,
        grants: Mapping[str, Sequence[PlacedGang]],
        renewable: Iterable[Lease],
        *,
        now_s: float,
        expires_at_s: float,
        round_id: int,
    ) -> list[LeaseChange]:
        """Turn a round's grants into leases.

        What an app wins on a machine is first taken from its own renewable GPUs there, which are renewed in place;
        then from free GPUs; then from GPUs that others lose, which are reserved until they are given back. Renewable
        leases that nobody renewed begin to expire.

        Raises:
            InvariantError: More is granted on a machine than there is; nothing is changed then.
        """
        up = {lease.gpu: lease for lease in renewable if self._live.get(lease.gpu) == lease}
        self._check_room(grants, {*self.free_gpus(), *up})
        changes: list[LeaseChange] = []
        wanted: list[tuple[str, PlacedGang, dict[str, int]]] = []
        for app_id in sorted(grants):
            for gang in sorted(grants[app_id], key=lambda gang: (not gang.pinned, gang.slot is None, gang)):
                changes_here, missing = self._renew(app_id, gang, up, expires_at_s, round_id)
                changes += changes_here
                wanted.append((app_id, gang, missing))
        available = {*self.free_gpus(), *up}
        # Gangs within a slot come first, whosever they are: the others take any GPU, and must leave those theirs.
        for app_id, gang, missing in sorted(wanted, key=lambda entry: entry[1].slot is None):
            for machine_id, count in missing.items():
                chosen = choose_gpus(self._cluster.machine(machine_id), available, up, count, gang.slot)
                available.difference_update(chosen)
                own = [gpu for gpu in chosen if gpu in up and up[gpu].app_id == app_id]
                changes += [self._prolong_in_place(up.pop(gpu), expires_at_s, round_id) for gpu in own]
                changes += [self._give(gpu, app_id, now_s, expires_at_s, round_id) for gpu in chosen if gpu not in own]
        changes += [self._expire(lease, round_id) for gpu, lease in up.items() if self._live.get(gpu) == lease]
        return sorted(changes, key=lambda change: _ORDER[change.kind])

    def prolong(self, leases: Iterable[Lease], expires_at_s: float) -> list[LeaseChange]:
        """Move the end of GRANTED leases without a round: their holder is away and will be waited for."""
        changes = []
        for lease in leases:
            prolonged = replace(lease, expires_at_s=expires_at_s)
            self._live[lease.gpu] = prolonged
            changes.append(LeaseChange(kind=LeaseChangeKind.RENEWED, lease=prolonged, reason="its app master is away"))
        return changes

    def release(self, lease_ids: Iterable[int], *, now_s: float, reason: str) -> list[LeaseChange]:
        """End leases by their holder's word. Leases that ended already are passed over: replays are harmless."""
        return self._end(lease_ids, LeaseState.RELEASED, now_s, reason)

    def revoke(self, lease_ids: Iterable[int], *, now_s: float, reason: str) -> list[LeaseChange]:
        """End leases by force, once it is certain that nothing of the holder runs on their GPUs any more."""
        return self._end(lease_ids, LeaseState.REVOKED, now_s, reason)

    # ---- inside ----

    def _check_room(self, grants: Mapping[str, Sequence[PlacedGang]], offered: set[GpuId]) -> None:
        asked = sum((gang.gpus for gangs in grants.values() for gang in gangs), Allocation())
        room = Allocation.of_gpus(offered)
        if not asked.within(room):
            raise InvariantError("more GPUs are granted than were offered", value=(asked.counts, room.counts))

    def _renew(
        self, app_id: str, gang: PlacedGang, up: dict[GpuId, Lease], expires_at_s: float, round_id: int
    ) -> tuple[list[LeaseChange], dict[str, int]]:
        changes: list[LeaseChange] = []
        missing: dict[str, int] = {}
        for machine_id, count in gang.gpus:
            mine = {gpu for gpu, lease in up.items() if lease.app_id == app_id and gpu.machine_id == machine_id}
            machine = self._cluster.machine(machine_id)
            if gang.slot is not None:
                mine = _whole_or_there(machine, mine, count, gang.slot)
            chosen = choose_gpus(machine, mine, {}, min(count, len(mine)), gang.slot)
            changes += [self._prolong_in_place(up.pop(gpu), expires_at_s, round_id) for gpu in chosen]
            if count > len(chosen):
                missing[machine_id] = count - len(chosen)
        return changes, missing

    def _prolong_in_place(self, lease: Lease, expires_at_s: float, round_id: int) -> LeaseChange:
        LEASE_LIFECYCLE.check(lease.state, LeaseState.GRANTED, str(lease.lease_id))
        renewed = replace(lease, expires_at_s=expires_at_s, renewals=lease.renewals + 1)
        self._live[lease.gpu] = renewed
        return LeaseChange(kind=LeaseChangeKind.RENEWED, lease=renewed, round_id=round_id)

    def _give(self, gpu: GpuId, app_id: str, now_s: float, expires_at_s: float, round_id: int) -> LeaseChange:
        taken = gpu in self._live
        if gpu in self._reserved:
            raise InvariantError("a GPU cannot be reserved twice", value=str(gpu))
        state = LeaseState.RESERVED if taken else LeaseState.GRANTED
        lease = Lease(
            lease_id=self._next_id, gpu=gpu, app_id=app_id, granted_at_s=now_s, expires_at_s=expires_at_s, state=state
        )
        self._next_id += 1
        (self._reserved if taken else self._live)[gpu] = lease
        kind = LeaseChangeKind.RESERVED if taken else LeaseChangeKind.GRANTED
        return LeaseChange(kind=kind, lease=lease, round_id=round_id)

    def _expire(self, lease: Lease, round_id: int) -> LeaseChange:
        state = LEASE_LIFECYCLE.check(lease.state, LeaseState.EXPIRING, str(lease.lease_id))
        expiring = replace(lease, state=state)
        self._live[lease.gpu] = expiring
        return LeaseChange(kind=LeaseChangeKind.EXPIRING, lease=expiring, round_id=round_id)

    def _end(self, lease_ids: Iterable[int], state: LeaseState, now_s: float, reason: str) -> list[LeaseChange]:
        kind = LeaseChangeKind.RELEASED if state is LeaseState.RELEASED else LeaseChangeKind.REVOKED
        changes: list[LeaseChange] = []
        for lease_id in sorted(set(lease_ids)):
            lease = self.find(lease_id)
            if lease is None:
                continue
            if lease.state is LeaseState.RESERVED:
                del self._reserved[lease.gpu]
                ended = replace(lease, state=LeaseState.RELEASED)
                changes.append(LeaseChange(kind=LeaseChangeKind.RELEASED, lease=ended, reason=reason, reserved=True))
                continue
            LEASE_LIFECYCLE.check(lease.state, state, str(lease_id))
            del self._live[lease.gpu]
            changes.append(LeaseChange(kind=kind, lease=replace(lease, state=state), reason=reason))
            changes += self._promote(lease.gpu, now_s)
        return changes

    def _promote(self, gpu: GpuId, now_s: float) -> list[LeaseChange]:
        reserved = self._reserved.pop(gpu, None)
        if reserved is None:
            return []
        granted = replace(reserved, state=LeaseState.GRANTED, granted_at_s=now_s)
        self._live[gpu] = granted
        return [LeaseChange(kind=LeaseChangeKind.GRANTED, lease=granted, reason="given back")]

    def validate(self) -> None:
        """Assert the table's invariants; a broken one raises InvariantError."""
        known = set(self._cluster.gpu_ids())
        for gpu, lease in (*self._live.items(), *self._reserved.items()):
            if gpu != lease.gpu or gpu not in known:
                raise InvariantError("a lease stands under a GPU that is not its own", value=lease)
            if LEASE_LIFECYCLE.is_final(lease.state):
                raise InvariantError("a lease that ended is still in the table", value=lease)
        for gpu, lease in self._reserved.items():
            holder = self._live.get(gpu)
            if holder is None or holder.state is not LeaseState.EXPIRING:
                raise InvariantError("a reserved GPU must be on its way back", value=lease)
        ids = [lease.lease_id for lease in (*self._live.values(), *self._reserved.values())]
        if len(ids) != len(set(ids)):
            raise InvariantError("two leases share one id")


_ORDER = {kind: place for place, kind in enumerate(LeaseChangeKind)}


def _whole_or_there(machine: Machine, mine: set[GpuId], count: int, slot: int) -> set[GpuId]:
    """What a gang won in a slot may renew: all of itself in some slot, or GPUs of its own slot.

    A part of it in another slot would tear the gang apart.
    """
    by_slot: dict[int, set[GpuId]] = {}
    for gpu in mine:
        by_slot.setdefault(machine.slot_of(gpu.index), set()).add(gpu)
    there = by_slot.get(slot, set())
    whole = [gpus for gpus in by_slot.values() if len(gpus) >= count]
    return there if len(there) >= count or not whole else mine


def allocation_of(leases: Iterable[Lease]) -> Allocation:
    """GPUs by machine of some leases."""
    return Allocation.of_gpus(lease.gpu for lease in leases)
