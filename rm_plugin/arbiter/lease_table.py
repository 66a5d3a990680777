"""The lease table: who holds which GPU until when. Pure state; every method returns the changes that it made.

A GPU has at most one live lease (GRANTED or EXPIRING). Beside an EXPIRING one it may have a RESERVED lease: the GPU
is won by another app, whose lease is granted at the moment that the former holder gives the GPU back.

A machine may be lost and come back. While it is lost it has no leases, and none of its GPUs is free. A GPU may be
closed: a lease on it runs to its end, but it is not given out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, KeysView, Mapping, Sequence

from msgspec.structs import replace

from rm_plugin.arbiter.free_gpus import FreeGpus
from rm_plugin.arbiter.gang_assignment import GangAssignment, assign_gangs, slots_first
from rm_plugin.arbiter.lease_index import LeaseIndex
from themis.bids import FreeMachine, PlacedGang
from themis.cluster import Allocation, Cluster, GpuId
from themis.errors import InvariantError
from themis.leases import Lease, LeaseChange, LeaseChangeKind, allocation_of
from themis.lifecycle import LEASE_LIFECYCLE, LeaseState


class LeaseTable:
    """Live and reserved leases of a cluster."""

    def __init__(
        self, cluster: Cluster, leases: Iterable[Lease] = (), next_lease_id: int = 1, *, lost: Iterable[str] = ()
    ) -> None:
        self._cluster = cluster
        self._live = LeaseIndex()
        self._reserved = LeaseIndex()
        self._by_id: dict[int, Lease] = {}
        self._free = FreeGpus(cluster, lost)
        # Until the app gets a lease, or one of its leases begins to expire or ends.
        self._kept: dict[str, Allocation] = {}
        self._touched: set[str] = set()
        # Machines whose leases or free GPUs changed since the invariants were last checked, and apps likewise.
        self._unchecked: set[str] = set()
        self._unchecked_apps: set[str] = set()
        self._next_id = next_lease_id
        self._undo: _Undo | None = None
        for lease in leases:
            index = self._index_for(lease)
            if lease.gpu in index.by_gpu:
                raise InvariantError("two leases hold one GPU", value=str(lease.gpu))
            self._put(lease)
            self._next_id = max(self._next_id, lease.lease_id + 1)

    # ---- reading ----

    @property
    def live(self) -> Mapping[GpuId, Lease]:
        """Live leases by GPU."""
        return self._live.by_gpu

    @property
    def reserved(self) -> Mapping[GpuId, Lease]:
        """Reserved leases by GPU."""
        return self._reserved.by_gpu

    @property
    def lost(self) -> frozenset[str]:
        """Machines that are lost."""
        return self._free.lost

    @property
    def closed(self) -> frozenset[GpuId]:
        """GPUs that are not given out."""
        return self._free.closed

    @property
    def gpus_available(self) -> int:
        """GPUs of the machines that are available, leased ones included."""
        return self._free.gpus_available

    @property
    def holders(self) -> KeysView[str]:
        """Apps with a live lease."""
        return self._live.holders

    def of_app(self, app_id: str) -> list[Lease]:
        """Every lease of an app, live and reserved, by GPU."""
        mine = [*self._live.of_app(app_id), *self._reserved.of_app(app_id)]
        if not mine:
            return mine
        return sorted(mine, key=lambda lease: (lease.gpu.machine_id, lease.gpu.index, lease.lease_id))

    def holds(self, app_id: str) -> bool:
        """Whether an app has a lease, live or reserved."""
        return app_id in self._live.holders or app_id in self._reserved.holders

    def live_of(self, app_id: str) -> Collection[Lease]:
        """The live leases of an app, in the order in which it got their GPUs."""
        return self._live.of_app(app_id)

    def kept_by(self, app_id: str) -> Allocation:
        """GPUs that an app may plan with: of all its leases but those that expire."""
        kept = self._kept.get(app_id)
        if kept is None:
            kept = self._kept[app_id] = self._not_expiring(app_id)
        return kept

    def bound_to(self, app_id: str) -> tuple[tuple[str, str], ...]:
        """(job, machine) of the app's bound leases, live and reserved, but for those that expire."""
        leases = (*self._live.of_app(app_id), *self._reserved.of_app(app_id))
        bound = [lease for lease in leases if lease.job_id and lease.state is not LeaseState.EXPIRING]
        return tuple(sorted([(lease.job_id, lease.gpu.machine_id) for lease in bound]))

    def take_touched(self) -> set[str]:
        """Return and forget the apps that got or lost a lease, or have one that began to expire, since the last call.

        Only the arbiter calls this. Renewals do not count, because the app holds the same GPUs as before.
        """
        touched, self._touched = self._touched, set()
        return touched

    def find(self, lease_id: int) -> Lease | None:
        """The live or reserved lease of this id, or None when it has ended."""
        return self._by_id.get(lease_id)

    def free_gpus(self) -> list[GpuId]:
        """GPUs to give out, machine by machine: without a live lease, on machines that are available, not closed."""
        return self._free.gpus()

    @property
    def free_count(self) -> int:
        """The number of GPUs to give out."""
        return self._free.count

    @property
    def has_free_gpus(self) -> bool:
        """Whether there is a GPU to give out."""
        return self._free.count > 0

    @property
    def free_version(self) -> int:
        """A number that grows whenever the GPUs to give out may have changed."""
        return self._free.version

    def ending(self, until_s: float) -> list[Lease]:
        """GRANTED leases that end by a time, and so are renewable."""
        first_s = self.next_end_s()
        if first_s is None or first_s > until_s:
            return []
        return [
            lease for lease in self.live.values() if lease.expires_at_s <= until_s and lease.state is LeaseState.GRANTED
        ]

    def next_end_s(self) -> float | None:
        """When the first GRANTED lease ends."""
        return self._live.next_end_s()

    def overdue(self, now_s: float, grace_s: float) -> list[Lease]:
        """EXPIRING leases whose holder has not given the GPU back `grace_s` seconds past their end."""
        return [lease for lease in self._live.expiring.values() if lease.expires_at_s + grace_s <= now_s]

    def offered_machines(self, renewable: Iterable[Lease]) -> tuple[FreeMachine, ...]:
        """Every machine with its GPUs to offer by slot: free ones and those of renewable leases.

        A lost machine is among them, without a GPU: gangs next to it ask for its rack.
        """
        return self._free.offered([lease.gpu for lease in renewable])

    # ---- undoing ----

    def begin(self) -> None:
        """Record every change from now on, until `keep` or `undo`."""
        if self._undo is not None:
            raise InvariantError("changes of leases that are neither kept nor undone")
        self._undo = _Undo(next_id=self._next_id)

    def keep(self) -> None:
        """Keep every change since `begin`."""
        self._undo = None

    def undo(self) -> None:
        """Undo every change since `begin`. Then the table holds the same lease objects as before.

        Only the order in which an app got its GPUs may differ.
        """
        undo, self._undo = self._undo, None
        if undo is None:
            raise InvariantError("no changes of leases to undo")
        for machine_id in undo.lost:
            self.regain(machine_id)
        for before, after in reversed(undo.changes):
            if before is not None:
                self._put(before)
            elif after is not None:
                self._drop(after)
        self._next_id = undo.next_id

    # ---- changing ----

    def settle(
        self,
        grants: Mapping[str, Sequence[PlacedGang]],
        renewable: Iterable[Lease],
        *,
        now_s: float,
        end_s: EndOf,
        round_id: int,
    ) -> list[LeaseChange]:
        """Turn a round's grants into leases.

        What an app wins on a machine is taken in this order: from its own renewable GPUs there, which are renewed in
        place; from free GPUs; from GPUs that other apps lose, which are reserved until they are returned. Renewable
        leases that were not renewed begin to expire.

        A lease begins now on a free GPU, else when the lease before it on its GPU ends. The leases of a gang end
        together; their end is computed from the latest beginning.

        Raises:
            InvariantError: More is granted on a machine than there is; nothing is changed then.
        """
        live = self.live
        # Check identity first: it is usually the same object, and comparing all fields of a lease is slow.
        up = {lease.gpu: lease for lease in renewable if (now := live.get(lease.gpu)) is lease or now == lease}
        gangs = assign_gangs(self._cluster, grants, up, self._free.by_machine)
        ends_s: dict[float, float] = {}
        for gang in gangs:
            gpus = [*gang.renewed, *gang.others] if gang.others else gang.renewed
            begins_s = max([now_s, *[up[gpu].expires_at_s for gpu in gpus if gpu in up]])
            if begins_s not in ends_s:
                ends_s[begins_s] = end_s(begins_s)
            gang.expires_at_s = ends_s[begins_s]
            if gang.at_most_s:
                gang.expires_at_s = min(gang.expires_at_s, begins_s + gang.at_most_s)
        renewed = [
            self._prolong_in_place(up.pop(gpu), gang.expires_at_s, round_id, gang.job_id)
            for gang in gangs
            for gpu in gang.renewed
        ]
        given: list[LeaseChange] = []
        for gang in sorted([gang for gang in gangs if gang.others], key=slots_first):
            for gpu in gang.others:
                if gpu in up and up[gpu].app_id == gang.app_id:
                    renewed.append(self._prolong_in_place(up.pop(gpu), gang.expires_at_s, round_id, gang.job_id))
                else:
                    given.append(self._give(gpu, gang, now_s, round_id))
        expiring = [self._expire(lease, round_id) for lease in up.values()]
        return [*sorted(given, key=_reserved_first), *renewed, *expiring]

    def prolong(self, leases: Iterable[Lease], *, now_s: float, end_s: EndOf, reason: str) -> list[LeaseChange]:
        """Prolong GRANTED leases without a round."""
        changes = []
        for lease in leases:
            prolonged = replace(lease, expires_at_s=end_s(max(now_s, lease.expires_at_s)))
            self._put(prolonged)
            changes.append(LeaseChange(kind=LeaseChangeKind.RENEWED, lease=prolonged, reason=reason))
        return changes

    def release(self, lease_ids: Iterable[int], *, now_s: float, reason: str) -> list[LeaseChange]:
        """End leases that their holder gives up. Skips leases that have ended, so a repeated message does no harm."""
        return self._end(lease_ids, LeaseState.RELEASED, now_s, reason)

    def revoke(self, lease_ids: Iterable[int], *, now_s: float, reason: str) -> list[LeaseChange]:
        """End leases by force, once it is certain that nothing of the holder runs on their GPUs any more."""
        return self._end(lease_ids, LeaseState.REVOKED, now_s, reason)

    def lose(self, machine_id: str, *, now_s: float, reason: str) -> list[LeaseChange]:
        """A machine is lost: its live leases are revoked, and GPUs that were won there are not given any more.

        Losing it twice is harmless; a machine that the cluster does not have raises UnknownNameError.
        """
        here = self._cluster.gpus_of(machine_id)
        # Reservations first: a GPU that is taken from its holder would else be given to the one that waits for it.
        won = [self.reserved[gpu].lease_id for gpu in here if gpu in self.reserved]
        held = [self.live[gpu].lease_id for gpu in here if gpu in self.live]
        changes = [*self.release(won, now_s=now_s, reason=reason), *self.revoke(held, now_s=now_s, reason=reason)]
        if self._undo is not None and machine_id not in self._free.lost:
            self._undo.lost.append(machine_id)
        self._free.lose(machine_id)
        self._unchecked.add(machine_id)
        return changes

    def regain(self, machine_id: str) -> None:
        """A machine is available again, with all its GPUs free; one that never was lost stays as it is.

        A machine that the cluster does not have raises UnknownNameError.
        """
        self._free.regain(machine_id)
        self._unchecked.add(machine_id)

    def expire(self, leases: Iterable[Lease]) -> list[LeaseChange]:
        """Let GRANTED leases expire that no round can renew."""
        return [self._expire(lease, 0) for lease in leases]

    def close(self, gpus: Collection[GpuId]) -> None:
        """Close exactly these GPUs. Raises UnknownNameError for GPUs that the cluster does not have."""
        self._free.close(gpus)
        self._unchecked.update([machine.machine_id for machine in self._cluster.machines])

    def refit(self, cluster: Cluster) -> None:
        """Replace the cluster. Machines with leases must be in the new one, unchanged.

        Raises:
            InvariantError: A machine with leases is missing or changed; nothing is changed then.
        """
        kept = {machine.machine_id: machine for machine in cluster.machines}
        for gpu in (*self.live, *self.reserved):
            if kept.get(gpu.machine_id) != self._cluster.machine(gpu.machine_id):
                raise InvariantError("a machine with leases cannot change", value=gpu.machine_id)
        self._cluster = cluster
        self._free.refit(cluster)
        self._unchecked = {machine.machine_id for machine in cluster.machines}

    # ---- inside: leases ----

    def _prolong_in_place(self, lease: Lease, expires_at_s: float, round_id: int, job_id: str) -> LeaseChange:
        LEASE_LIFECYCLE.check(lease.state, LeaseState.GRANTED, lease.lease_id)
        renewed = replace(lease, expires_at_s=expires_at_s, renewals=lease.renewals + 1, job_id=job_id)
        self._live.renew(lease, renewed)
        if self._undo is not None:
            self._undo.changes.append((lease, renewed))
        self._unchecked.add(lease.gpu.machine_id)
        self._by_id[lease.lease_id] = renewed
        if job_id != lease.job_id:
            self._touch(renewed)
        return LeaseChange(kind=LeaseChangeKind.RENEWED, lease=renewed, round_id=round_id)

    def _give(self, gpu: GpuId, gang: GangAssignment, now_s: float, round_id: int) -> LeaseChange:
        taken = gpu in self.live
        if gpu in self.reserved:
            raise InvariantError("a GPU cannot be reserved twice", value=str(gpu))
        lease = Lease(
            lease_id=self._next_id,
            gpu=gpu,
            app_id=gang.app_id,
            granted_at_s=now_s,
            expires_at_s=gang.expires_at_s,
            state=LeaseState.RESERVED if taken else LeaseState.GRANTED,
            job_id=gang.job_id,
        )
        self._next_id += 1
        self._put(lease)
        kind = LeaseChangeKind.RESERVED if taken else LeaseChangeKind.GRANTED
        return LeaseChange(kind=kind, lease=lease, round_id=round_id)

    def _expire(self, lease: Lease, round_id: int) -> LeaseChange:
        state = LEASE_LIFECYCLE.check(lease.state, LeaseState.EXPIRING, lease.lease_id)
        expiring = replace(lease, state=state)
        self._put(expiring)
        return LeaseChange(kind=LeaseChangeKind.EXPIRING, lease=expiring, round_id=round_id)

    def _end(self, lease_ids: Iterable[int], state: LeaseState, now_s: float, reason: str) -> list[LeaseChange]:
        kind = LeaseChangeKind.RELEASED if state is LeaseState.RELEASED else LeaseChangeKind.REVOKED
        changes: list[LeaseChange] = []
        for lease_id in sorted(set(lease_ids)):
            lease = self.find(lease_id)
            if lease is None:
                continue
            if lease.state is LeaseState.RESERVED:
                self._drop(lease)
                ended = replace(lease, state=LeaseState.RELEASED)
                changes.append(LeaseChange(kind=LeaseChangeKind.RELEASED, lease=ended, reason=reason, reserved=True))
                continue
            LEASE_LIFECYCLE.check(lease.state, state, lease_id)
            self._drop(lease)
            changes.append(LeaseChange(kind=kind, lease=replace(lease, state=state), reason=reason))
            changes += self._promote(lease.gpu, now_s)
        return changes

    def _promote(self, gpu: GpuId, now_s: float) -> list[LeaseChange]:
        reserved = self.reserved.get(gpu)
        if reserved is None:
            return []
        self._drop(reserved)
        granted = replace(reserved, state=LeaseState.GRANTED, granted_at_s=now_s)
        self._put(granted)
        return [LeaseChange(kind=LeaseChangeKind.GRANTED, lease=granted, reason="given back")]

    def _index_for(self, lease: Lease) -> LeaseIndex:
        return self._reserved if lease.state is LeaseState.RESERVED else self._live

    def _put(self, lease: Lease) -> None:
        """Add a lease. No other code does."""
        before = self._index_for(lease).put(lease)
        self._by_id[lease.lease_id] = lease
        if before is None and lease.state is not LeaseState.RESERVED:
            self._free.lease(lease.gpu)
        if self._undo is not None:
            self._undo.changes.append((before, lease))
        self._touch(lease)

    def _drop(self, lease: Lease) -> None:
        """Remove a lease. No other code does."""
        if self._undo is not None:
            self._undo.changes.append((lease, None))
        self._index_for(lease).drop(lease.gpu)
        del self._by_id[lease.lease_id]
        if lease.state is not LeaseState.RESERVED:
            self._free.give_back(lease.gpu)
        self._touch(lease)

    def _touch(self, lease: Lease) -> None:
        self._touched.add(lease.app_id)
        self._unchecked_apps.add(lease.app_id)
        self._unchecked.add(lease.gpu.machine_id)
        self._kept.pop(lease.app_id, None)

    def _not_expiring(self, app_id: str) -> Allocation:
        leases = (*self._live.of_app(app_id), *self._reserved.of_app(app_id))
        return allocation_of([lease for lease in leases if lease.state is not LeaseState.EXPIRING])

    # ---- invariants ----

    def validate(self) -> None:
        """Assert the table's invariants; a broken one raises InvariantError."""
        live = self._live.validate(self._by_id)
        reserved = self._reserved.validate(self._by_id)
        self._check_sizes()
        for gpu, lease in self.reserved.items():
            self._check_reserved(gpu, lease)
        self._free.validate(self._cluster, live.gpus)
        for app_id, kept in self._kept.items():
            planned = live.planned.get(app_id, {})
            if app_id in reserved.planned:
                planned = Counter(planned) + Counter(reserved.planned[app_id])
            # Most apps have GPUs on one machine only, which needs no sorting.
            counts = tuple(planned.items() if len(planned) < 2 else sorted(planned.items()))
            if kept.counts != counts:
                raise InvariantError("the cached GPUs of an app differ from its leases", value=app_id)
        self._unchecked.clear()
        self._unchecked_apps.clear()

    def validate_changes(self) -> None:
        """Assert the invariants of the machines and apps whose leases changed since the last check.

        Only `validate` counts the leases that end at each time, and finds a defect that changed the table without
        putting, renewing or dropping a lease. If more than half of the machines changed, or one is unknown, this
        calls `validate`.
        """
        there = self._cluster.rack_of.keys()
        if 2 * len(self._unchecked) > len(there) or not self._unchecked <= there:
            self.validate()
            return
        self._check_sizes()
        self._live.check_sizes()
        self._reserved.check_sizes()
        for machine_id in self._unchecked:
            leased = self._live.validate_gpus(self._cluster.gpus_of(machine_id), self._by_id)
            self._reserved.validate_gpus(self._cluster.gpus_of(machine_id), self._by_id)
            self._free.validate_machine(self._cluster.machine(machine_id), leased)
            for gpu in self._cluster.gpus_of(machine_id):
                if gpu in self.reserved:
                    self._check_reserved(gpu, self.reserved[gpu])
        for app_id in self._unchecked_apps:
            if app_id in self._kept and self._kept[app_id] != self._not_expiring(app_id):
                raise InvariantError("the cached GPUs of an app differ from its leases", value=app_id)
        self._unchecked.clear()
        self._unchecked_apps.clear()

    def _check_sizes(self) -> None:
        if len(self._by_id) != len(self.live) + len(self.reserved):
            raise InvariantError("the leases and their index by id differ", value=self._strangers())

    def _check_reserved(self, gpu: GpuId, lease: Lease) -> None:
        holder = self.live.get(gpu)
        if holder is None or holder.state is not LeaseState.EXPIRING:
            raise InvariantError("a reserved GPU must be on its way back", value=lease)

    def _strangers(self) -> list[int]:
        """Ids of leases that only the index by id contains."""
        known = {lease.lease_id for lease in (*self.live.values(), *self.reserved.values())}
        return sorted(self._by_id.keys() - known)


class _Undo:
    """What there was before each change: a lease that came in, went out, or took the place of its former self."""

    def __init__(self, next_id: int) -> None:
        self.next_id = next_id
        self.changes: list[tuple[Lease | None, Lease | None]] = []
        self.lost: list[str] = []


EndOf = Callable[[float], float]
"""When a lease ends that begins at a time, both in seconds."""


def _reserved_first(change: LeaseChange) -> bool:
    return change.kind is not LeaseChangeKind.RESERVED
