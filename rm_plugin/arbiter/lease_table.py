"""The lease table: who holds which GPU until when. Pure state; every method returns the changes that it made.

A GPU has at most one live lease (GRANTED or EXPIRING). Beside an EXPIRING one it may have a RESERVED lease: the GPU
is won by another app, whose lease is granted at the moment that the former holder gives the GPU back.

A machine may be lost and come back. While it is lost it has no leases, and none of its GPUs is free. A GPU may be
closed: a lease on it runs to its end, but it is not given out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from msgspec.structs import replace

from rm_plugin.arbiter.gpu_choice import choose_gpus, whole_or_there
from rm_plugin.arbiter.lease_index import LeaseIndex
from themis.bids import FreeMachine, PlacedGang
from themis.cluster import Allocation, Cluster, GpuId, Machine
from themis.errors import InvariantError
from themis.leases import Lease, LeaseChange, LeaseChangeKind, allocation_of
from themis.lifecycle import LEASE_LIFECYCLE, LeaseState


@dataclass(slots=True, kw_only=True)
class _Chosen:
    """A gang that was granted: its GPUs, those that it renews apart, how many it lacks by machine, when it ends."""

    app_id: str
    slot: int | None
    renewed: list[GpuId]
    missing: Mapping[str, int]
    others: list[GpuId] = field(default_factory=list)
    expires_at_s: float = 0.0


def _slots_first(gang: _Chosen) -> bool:
    # Gangs within a slot come first, whosever they are: the others take any GPU, and must leave those theirs.
    return gang.slot is None


class LeaseTable:
    """Live and reserved leases of a cluster."""

    def __init__(
        self, cluster: Cluster, leases: Iterable[Lease] = (), next_lease_id: int = 1, *, lost: Iterable[str] = ()
    ) -> None:
        self._cluster = cluster
        self._live = LeaseIndex()
        self._reserved = LeaseIndex()
        self._by_id: dict[int, Lease] = {}
        self._lost = {cluster.machine(machine_id).machine_id for machine_id in lost}
        self._closed: frozenset[GpuId] = frozenset()
        # Both hold for a machine until a lease on it starts or ends, or the machine is lost or comes back.
        self._free: dict[str, tuple[GpuId, ...]] = {}
        self._offers: dict[str, FreeMachine] = {}
        # Until a lease of the app starts, changes or ends.
        self._kept: dict[str, Allocation] = {}
        self._next_id = next_lease_id
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
        return frozenset(self._lost)

    @property
    def closed(self) -> frozenset[GpuId]:
        """GPUs that are not given out."""
        return self._closed

    @property
    def gpus_there(self) -> int:
        """GPUs of the machines that are there, leased ones included."""
        return self._cluster.gpus - sum(self._cluster.machine(machine_id).gpus for machine_id in self._lost)

    @property
    def holders(self) -> Collection[str]:
        """Apps with a live lease."""
        return self._live.holders

    def holds(self, app_id: str) -> bool:
        """True when an app has a lease, live or reserved."""
        return app_id in self._live.holders or app_id in self._reserved.holders

    def of_app(self, app_id: str) -> list[Lease]:
        """Every lease of an app, live and reserved, by GPU."""
        mine = [*self._live.of_app(app_id), *self._reserved.of_app(app_id)]
        if not mine:
            return mine
        return sorted(mine, key=lambda lease: (lease.gpu.machine_id, lease.gpu.index, lease.lease_id))

    def live_of(self, app_id: str) -> Collection[Lease]:
        """The live leases of an app, in the order in which it got their GPUs."""
        return self._live.of_app(app_id)

    def kept_by(self, app_id: str) -> Allocation:
        """GPUs that an app may plan with: of all its leases but those that expire."""
        kept = self._kept.get(app_id)
        if kept is None:
            kept = self._kept[app_id] = self._not_expiring(app_id)
        return kept

    def find(self, lease_id: int) -> Lease | None:
        """The live or reserved lease of this id, or None when it has ended."""
        return self._by_id.get(lease_id)

    def free_gpus(self) -> list[GpuId]:
        """GPUs to give out, machine by machine: without a live lease, on machines that are there, not closed."""
        return [gpu for machine in self._cluster.machines for gpu in self._free_on(machine.machine_id)]

    @property
    def has_free_gpus(self) -> bool:
        """True when there is a GPU to give out."""
        return any(self._free_on(machine.machine_id) for machine in self._cluster.machines)

    def ending(self, until_s: float) -> list[Lease]:
        """GRANTED leases that end by a time: up for renewal."""
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
        return [
            lease
            for lease in self.live.values()
            if lease.state is LeaseState.EXPIRING and lease.expires_at_s + grace_s <= now_s
        ]

    def offered_machines(self, renewable: Iterable[Lease]) -> tuple[FreeMachine, ...]:
        """Every machine with its GPUs to offer by slot: free ones and those of leases up for renewal.

        A lost machine is among them, without a GPU: gangs next to it ask for its rack.
        """
        up: dict[str, set[GpuId]] = {}
        for lease in renewable:
            up.setdefault(lease.gpu.machine_id, set()).add(lease.gpu)
        return tuple(
            self._offer(machine, up[machine.machine_id]) if machine.machine_id in up else self._offer_of_free(machine)
            for machine in self._cluster.machines
        )

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

        What an app wins on a machine is first taken from its own renewable GPUs there, which are renewed in place;
        then from free GPUs; then from GPUs that others lose, which are reserved until they are given back. Renewable
        leases that nobody renewed begin to expire.

        A lease begins where the one that it follows on its GPU ends, on a free GPU now. Those of a gang end together,
        by the last of their beginnings.

        Raises:
            InvariantError: More is granted on a machine than there is; nothing is changed then.
        """
        up = {lease.gpu: lease for lease in renewable if self._still_runs(lease)}
        gangs = self._chosen(grants, up)
        for gang in gangs:
            begins_s = [_begins_s(up.get(gpu), now_s) for gpu in (*gang.renewed, *gang.others)]
            gang.expires_at_s = end_s(max(begins_s))
        changes: list[LeaseChange] = []
        for gang in gangs:
            changes += [self._prolong_in_place(up.pop(gpu), gang.expires_at_s, round_id) for gpu in gang.renewed]
        for gang in sorted(gangs, key=_slots_first):
            own = [gpu for gpu in gang.others if gpu in up and up[gpu].app_id == gang.app_id]
            new = [gpu for gpu in gang.others if gpu not in own]
            changes += [self._prolong_in_place(up.pop(gpu), gang.expires_at_s, round_id) for gpu in own]
            changes += [self._give(gpu, gang.app_id, now_s, gang.expires_at_s, round_id) for gpu in new]
        changes += [self._expire(lease, round_id) for lease in up.values() if self._still_runs(lease)]
        return sorted(changes, key=lambda change: _ORDER[change.kind])

    def prolong(self, leases: Iterable[Lease], *, now_s: float, end_s: EndOf) -> list[LeaseChange]:
        """Move the end of GRANTED leases without a round: their holder is away and will be waited for."""
        changes = []
        for lease in leases:
            prolonged = replace(lease, expires_at_s=end_s(_begins_s(lease, now_s)))
            self._put(prolonged)
            changes.append(LeaseChange(kind=LeaseChangeKind.RENEWED, lease=prolonged, reason="its app master is away"))
        return changes

    def release(self, lease_ids: Iterable[int], *, now_s: float, reason: str) -> list[LeaseChange]:
        """End leases by their holder's word. Leases that ended already are passed over: replays are harmless."""
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
        self._lost.add(machine_id)
        self._forget(machine_id)
        return changes

    def regain(self, machine_id: str) -> None:
        """A machine is there again, with all its GPUs free; one that never was lost stays as it is.

        A machine that the cluster does not have raises UnknownNameError.
        """
        self._lost.discard(self._cluster.machine(machine_id).machine_id)
        self._forget(machine_id)

    def expire(self, leases: Iterable[Lease]) -> list[LeaseChange]:
        """GRANTED leases that nobody will renew begin to expire."""
        return [self._expire(lease, 0) for lease in leases]

    def close(self, gpus: Collection[GpuId]) -> None:
        """From now on exactly these GPUs are closed; ones that the cluster does not have raise UnknownNameError."""
        closed = frozenset(gpus)
        for machine_id in {gpu.machine_id for gpu in closed ^ self._closed}:
            self._cluster.machine(machine_id)
            self._forget(machine_id)
        self._closed = closed

    def refit(self, cluster: Cluster) -> None:
        """The cluster has other machines from now on; those with leases must be among them, as they were.

        Raises:
            InvariantError: A machine with leases is missing or changed; nothing is changed then.
        """
        kept = {machine.machine_id: machine for machine in cluster.machines}
        for gpu in (*self.live, *self.reserved):
            if kept.get(gpu.machine_id) != self._cluster.machine(gpu.machine_id):
                raise InvariantError("a machine with leases cannot change", value=gpu.machine_id)
        self._cluster = cluster
        self._lost &= set(kept)
        self._closed = frozenset(gpu for gpu in self._closed if gpu in cluster.gpu_set)
        self._free.clear()
        self._offers.clear()

    # ---- inside: leases ----

    def _still_runs(self, lease: Lease) -> bool:
        """Whether a live lease is as it was."""
        # Mostly it is the same object, and to compare all that leases say takes long.
        now = self.live.get(lease.gpu)
        return now is lease or now == lease

    def _chosen(self, grants: Mapping[str, Sequence[PlacedGang]], up: Mapping[GpuId, Lease]) -> list[_Chosen]:
        """The GPUs of every gang, those that it renews first; more than there are raises InvariantError."""
        mine = _by_holder(up.values())
        available = self._available(up)
        _check_room(grants, available)
        found: list[_Chosen] = []
        for app_id in sorted(grants):
            for gang in sorted(grants[app_id], key=lambda gang: (not gang.pinned, gang.slot is None, gang)):
                renewed, missing = self._renewed(gang, mine.get(app_id, {}))
                _take(available, renewed)
                found.append(_Chosen(app_id=app_id, slot=gang.slot, renewed=renewed, missing=missing))
        for chosen in sorted(found, key=_slots_first):
            for machine_id, count in chosen.missing.items():
                machine = self._cluster.machine(machine_id)
                more = choose_gpus(machine, available.get(machine_id, ()), up, count, chosen.slot)
                _take(available, more)
                chosen.others += more
        return found

    def _renewed(self, gang: PlacedGang, mine: Mapping[str, set[GpuId]]) -> tuple[list[GpuId], dict[str, int]]:
        """What a gang renews of its app's GPUs that are up (taken out of `mine`), and how many it lacks by machine."""
        renewed: list[GpuId] = []
        missing: dict[str, int] = {}
        for machine_id, count in gang.gpus:
            machine = self._cluster.machine(machine_id)
            here = mine.get(machine_id, set())
            fitting = here if gang.slot is None else whole_or_there(machine, here, count, gang.slot)
            chosen = choose_gpus(machine, fitting, {}, min(count, len(fitting)), gang.slot)
            here.difference_update(chosen)
            renewed += chosen
            if count > len(chosen):
                missing[machine_id] = count - len(chosen)
        return renewed, missing

    def _prolong_in_place(self, lease: Lease, expires_at_s: float, round_id: int) -> LeaseChange:
        LEASE_LIFECYCLE.check(lease.state, LeaseState.GRANTED, str(lease.lease_id))
        renewed = replace(lease, expires_at_s=expires_at_s, renewals=lease.renewals + 1)
        self._put(renewed)
        return LeaseChange(kind=LeaseChangeKind.RENEWED, lease=renewed, round_id=round_id)

    def _give(self, gpu: GpuId, app_id: str, now_s: float, expires_at_s: float, round_id: int) -> LeaseChange:
        taken = gpu in self.live
        if gpu in self.reserved:
            raise InvariantError("a GPU cannot be reserved twice", value=str(gpu))
        state = LeaseState.RESERVED if taken else LeaseState.GRANTED
        lease = Lease(
            lease_id=self._next_id, gpu=gpu, app_id=app_id, granted_at_s=now_s, expires_at_s=expires_at_s, state=state
        )
        self._next_id += 1
        self._put(lease)
        kind = LeaseChangeKind.RESERVED if taken else LeaseChangeKind.GRANTED
        return LeaseChange(kind=kind, lease=lease, round_id=round_id)

    def _expire(self, lease: Lease, round_id: int) -> LeaseChange:
        state = LEASE_LIFECYCLE.check(lease.state, LeaseState.EXPIRING, str(lease.lease_id))
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
            LEASE_LIFECYCLE.check(lease.state, state, str(lease_id))
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
        """Every lease comes in here."""
        before = self._index_for(lease).put(lease)
        self._by_id[lease.lease_id] = lease
        self._forget(lease.gpu.machine_id)
        self._kept.pop(lease.app_id, None)
        if before is not None:
            self._kept.pop(before.app_id, None)

    def _drop(self, lease: Lease) -> None:
        """Every lease goes out here."""
        self._index_for(lease).drop(lease.gpu)
        del self._by_id[lease.lease_id]
        self._forget(lease.gpu.machine_id)
        self._kept.pop(lease.app_id, None)

    # ---- inside: free GPUs ----

    def _not_expiring(self, app_id: str) -> Allocation:
        leases = (*self._live.of_app(app_id), *self._reserved.of_app(app_id))
        return allocation_of([lease for lease in leases if lease.state is not LeaseState.EXPIRING])

    def _forget(self, machine_id: str) -> None:
        self._free.pop(machine_id, None)
        self._offers.pop(machine_id, None)

    def _free_on(self, machine_id: str) -> tuple[GpuId, ...]:
        free = self._free.get(machine_id)
        if free is None:
            there = () if machine_id in self._lost else self._cluster.gpus_of(machine_id)
            free = self._free[machine_id] = self._givable(there)
        return free

    def _givable(self, gpus: Iterable[GpuId]) -> tuple[GpuId, ...]:
        live, closed = self.live, self._closed
        return tuple([gpu for gpu in gpus if gpu not in live and not (closed and gpu in closed)])

    def _available(self, up: Iterable[GpuId]) -> dict[str, set[GpuId]]:
        """GPUs to give by machine: free ones and those up for renewal."""
        available = {
            machine.machine_id: set(free)
            for machine in self._cluster.machines
            if (free := self._free_on(machine.machine_id))
        }
        for gpu in up:
            available.setdefault(gpu.machine_id, set()).add(gpu)
        return available

    def _offer_of_free(self, machine: Machine) -> FreeMachine:
        """What a machine has free; the value is kept, since from round to round few machines change."""
        offer = self._offers.get(machine.machine_id)
        if offer is None:
            offer = self._offers[machine.machine_id] = self._offer(machine, ())
        return offer

    def _offer(self, machine: Machine, up: Iterable[GpuId]) -> FreeMachine:
        slots = self._slots_offered(machine, up)
        return FreeMachine(machine_id=machine.machine_id, rack_id=machine.rack_id, free_slots=slots)

    def _slots_offered(self, machine: Machine, up: Iterable[GpuId]) -> tuple[int, ...]:
        slots = [0] * len(machine.slots)
        for gpu in {*self._free_on(machine.machine_id), *up}:
            slots[machine.slot_of(gpu.index)] += 1
        return tuple(slots)

    # ---- invariants ----

    def validate(self) -> None:
        """Assert the table's invariants; a broken one raises InvariantError."""
        known = self._cluster.gpu_set
        for gpu, lease in (*self.live.items(), *self.reserved.items()):
            if (gpu is not lease.gpu and gpu != lease.gpu) or gpu not in known:
                raise InvariantError("a lease stands under a GPU that is not its own", value=lease)
            if LEASE_LIFECYCLE.is_final(lease.state):
                raise InvariantError("a lease that ended is still in the table", value=lease)
            if gpu.machine_id in self._lost:
                raise InvariantError("a lease lies on a machine that is lost", value=lease)
        for gpu, lease in self.reserved.items():
            holder = self.live.get(gpu)
            if holder is None or holder.state is not LeaseState.EXPIRING:
                raise InvariantError("a reserved GPU must be on its way back", value=lease)
        self._validate_indices()

    def _validate_indices(self) -> None:
        leases = [*self.live.values(), *self.reserved.values()]
        by_id = {lease.lease_id: lease for lease in leases}
        if len(by_id) != len(leases):
            raise InvariantError("two leases share one id")
        if by_id != self._by_id:
            raise InvariantError("the leases and their index by id differ", value=sorted(by_id.keys() ^ self._by_id))
        self._live.validate()
        self._reserved.validate()
        for machine_id, free in self._free.items():
            there = () if machine_id in self._lost else self._cluster.gpus_of(machine_id)
            if free != self._givable(there):
                raise InvariantError("the free GPUs of a machine are not those to give out", value=machine_id)
        for app_id, kept in self._kept.items():
            if kept != self._not_expiring(app_id):
                raise InvariantError("what an app may plan with is not what it holds", value=app_id)
        for machine_id, offer in self._offers.items():
            if offer.free_slots != self._slots_offered(self._cluster.machine(machine_id), ()):
                raise InvariantError("a machine's offer is not what it has free", value=machine_id)


EndOf = Callable[[float], float]
"""When a lease ends that begins at a time, both in seconds."""

_ORDER = {kind: place for place, kind in enumerate(LeaseChangeKind)}


def _begins_s(follows: Lease | None, now_s: float) -> float:
    """When a lease begins on a GPU whose present lease this is, if it has one."""
    return now_s if follows is None else max(now_s, follows.expires_at_s)


def _by_holder(up: Iterable[Lease]) -> dict[str, dict[str, set[GpuId]]]:
    """GPUs up for renewal by app and machine."""
    mine: dict[str, dict[str, set[GpuId]]] = {}
    for lease in up:
        mine.setdefault(lease.app_id, {}).setdefault(lease.gpu.machine_id, set()).add(lease.gpu)
    return mine


def _check_room(grants: Mapping[str, Sequence[PlacedGang]], available: Mapping[str, set[GpuId]]) -> None:
    asked: Counter[str] = Counter()
    for gangs in grants.values():
        for gang in gangs:
            for machine_id, count in gang.gpus:
                asked[machine_id] += count
    if any(count > len(available.get(machine_id, ())) for machine_id, count in asked.items()):
        room = {machine_id: len(gpus) for machine_id, gpus in available.items()}
        raise InvariantError("more GPUs are granted than were offered", value=(dict(asked), room))


def _take(available: Mapping[str, set[GpuId]], gpus: Iterable[GpuId]) -> None:
    for gpu in gpus:
        available[gpu.machine_id].discard(gpu)
