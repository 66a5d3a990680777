"""Leases by GPU, with what a round asks of them kept up to date: those of an app, and when the first one ends."""

from __future__ import annotations

from collections.abc import Collection, Iterable, KeysView, Mapping
from dataclasses import dataclass, field
from itertools import chain
from operator import attrgetter, is_

from themis.cluster import GpuId
from themis.errors import InvariantError
from themis.leases import Lease
from themis.lifecycle import LEASE_LIFECYCLE, LeaseState


@dataclass(slots=True)
class LeaseTotals:
    """Totals recomputed from the leases, to check those that are stored elsewhere.

    `gpus` are the leased GPUs by machine, as numbers (`gpu_choice`); `planned` those by app and machine, by their
    count, whose leases do not expire; `ends` counts GRANTED leases by their end.
    """

    gpus: dict[str, int] = field(default_factory=dict)
    planned: dict[str, dict[str, int]] = field(default_factory=dict)
    ends: dict[float, int] = field(default_factory=dict)

    def count(self, app_id: str, leases: Mapping[GpuId, Lease]) -> None:
        """Count the leases of an app by GPU; one of another app raises InvariantError."""
        gpus, ends = self.gpus, self.ends
        planned = self.planned[app_id] = {}
        for gpu, lease in leases.items():
            if lease.app_id != app_id:
                raise InvariantError("the leases and their index by app differ", value=lease)
            machine_id = gpu.machine_id
            gpus[machine_id] = gpus.get(machine_id, 0) | 1 << gpu.index
            state = lease.state
            if state is not _EXPIRING:
                planned[machine_id] = planned.get(machine_id, 0) + 1
                if state is _GRANTED:
                    end_s = lease.expires_at_s
                    ends[end_s] = ends.get(end_s, 0) + 1


class LeaseIndex:
    """At most one lease for each GPU. A round asks once for every app, so nothing here looks at the leases of others.

    The leases of an app are in the order in which their GPUs were added, as in `by_gpu`. So sums over them do not
    depend on the leases of others.
    """

    __slots__ = ("_by_app", "_by_gpu", "_ends", "_expiring", "by_app", "by_gpu", "expiring")

    def __init__(self) -> None:
        self._by_gpu: dict[GpuId, Lease] = {}
        # Every lease by its GPU, in the order in which the GPUs came in: to read.
        self.by_gpu: Mapping[GpuId, Lease] = self._by_gpu
        self._by_app: dict[str, dict[GpuId, Lease]] = {}
        # The leases of every app that has one, by their GPU: to read.
        self.by_app: Mapping[str, Mapping[GpuId, Lease]] = self._by_app
        self._ends: dict[float, int] = {}
        self._expiring: dict[GpuId, Lease] = {}
        # The EXPIRING leases, by their GPU: to read.
        self.expiring: Mapping[GpuId, Lease] = self._expiring

    @property
    def holders(self) -> KeysView[str]:
        """Apps with a lease here."""
        return self._by_app.keys()

    def of_app(self, app_id: str) -> Collection[Lease]:
        """The leases of an app."""
        mine = self._by_app.get(app_id)
        return mine.values() if mine else ()

    def next_end_s(self) -> float | None:
        """When the first GRANTED lease ends."""
        return min(self._ends, default=None)

    def put(self, lease: Lease) -> Lease | None:
        """Set the lease of a GPU, in the place of the one before, which is returned."""
        gpu, app_id = lease.gpu, lease.app_id
        before = self._by_gpu.get(gpu)
        if before is not None:
            self._count_out(before)
            if before.app_id != app_id:
                self._take_from(before)
        self._by_gpu[gpu] = lease
        mine = self._by_app.get(app_id)
        if mine is None:
            mine = self._by_app[app_id] = {}
        mine[gpu] = lease
        if lease.state is _GRANTED:
            self._ends[lease.expires_at_s] = self._ends.get(lease.expires_at_s, 0) + 1
        elif lease.state is _EXPIRING:
            self._expiring[gpu] = lease
        return before

    def renew(self, before: Lease, lease: Lease) -> None:
        """Set a GRANTED lease in the place of another one of the same app on the same GPU, as `put` does."""
        gpu, end_s = lease.gpu, lease.expires_at_s
        self._by_gpu[gpu] = self._by_app[lease.app_id][gpu] = lease
        if end_s != before.expires_at_s:
            self._ends[end_s] = self._ends.get(end_s, 0) + 1
            self._count_out(before)

    def drop(self, gpu: GpuId) -> Lease | None:
        """Take the lease of a GPU out; None when there is none."""
        lease = self._by_gpu.pop(gpu, None)
        if lease is not None:
            self._take_from(lease)
            self._count_out(lease)
        return lease

    def validate(self, by_id: Mapping[int, Lease]) -> LeaseTotals:
        """Assert that the indices by app, by end and by id match the leases, and return the totals of the leases.

        Every round of a simulated run checks every lease here, so the checks take few steps of Python.
        """
        if self.by_gpu is not self._by_gpu or self.by_app is not self._by_app:
            raise InvariantError("what may be read of the leases is not what is kept", value=sorted(self.by_app))
        leases = list(self._by_gpu.values())
        if not _same(map(_GPU, leases), self._by_gpu) and list(map(_GPU, leases)) != list(self._by_gpu):
            strays = [lease for gpu, lease in self._by_gpu.items() if lease.gpu != gpu]
            raise InvariantError("a lease stands under a GPU that is not its own", value=strays)
        if not _same(map(by_id.get, map(_LEASE_ID, leases)), leases):
            strays = [lease for lease in leases if by_id.get(lease.lease_id) is not lease]
            raise InvariantError("the leases and their index by id differ", value=strays)
        for state in set(map(_STATE, leases)):
            if LEASE_LIFECYCLE.is_final(state):
                raise InvariantError("a lease that ended is still in the table", value=state)
        by_app = self._by_app.values()
        held = list(chain.from_iterable([mine.values() for mine in by_app]))
        if len(held) != len(leases) or not _same(map(self._by_gpu.get, chain.from_iterable(by_app)), held):
            raise InvariantError("the leases and their index by app differ", value=sorted(self._by_app))
        totals = LeaseTotals()
        for app_id, mine in self._by_app.items():
            totals.count(app_id, mine)
        if not all(by_app) or totals.ends != self._ends:
            raise InvariantError("the leases and their index by app or by end differ", value=sorted(self._by_app))
        if self.expiring is not self._expiring or self._expiring != {
            lease.gpu: lease for lease in leases if lease.state is _EXPIRING
        }:
            raise InvariantError("the expiring leases and their index differ", value=sorted(map(str, self._expiring)))
        return totals

    def check_sizes(self) -> None:
        """Assert that the sizes of all indices agree, so that no lease is in one index only."""
        by_app = self._by_app.values()
        if not all(by_app) or sum(map(len, by_app)) != len(self._by_gpu):
            raise InvariantError("the leases and their index by app differ", value=sorted(self._by_app))

    def validate_gpus(self, gpus: Iterable[GpuId], by_id: Mapping[int, Lease]) -> int:
        """Assert of the leases on GPUs of one machine what `validate` does of all; returns the leased ones as bits."""
        leased = 0
        for gpu in gpus:
            lease = self._by_gpu.get(gpu)
            if lease is None:
                continue
            leased |= 1 << gpu.index
            if lease.gpu != gpu:
                raise InvariantError("a lease stands under a GPU that is not its own", value=lease)
            if by_id.get(lease.lease_id) is not lease:
                raise InvariantError("the leases and their index by id differ", value=lease)
            if LEASE_LIFECYCLE.is_final(lease.state):
                raise InvariantError("a lease that ended is still in the table", value=lease.state)
            if self._by_app.get(lease.app_id, {}).get(gpu) is not lease:
                raise InvariantError("the leases and their index by app differ", value=lease)
            if lease.state is _GRANTED and lease.expires_at_s not in self._ends:
                raise InvariantError("the leases and their index by app or by end differ", value=lease)
            if (lease.state is _EXPIRING) != (self._expiring.get(gpu) is lease):
                raise InvariantError("the expiring leases and their index differ", value=lease)
        return leased

    def _take_from(self, lease: Lease) -> None:
        mine = self._by_app[lease.app_id]
        del mine[lease.gpu]
        if not mine:
            del self._by_app[lease.app_id]

    def _count_out(self, lease: Lease) -> None:
        if lease.state is _GRANTED:
            count = self._ends[lease.expires_at_s] - 1
            if count:
                self._ends[lease.expires_at_s] = count
            else:
                del self._ends[lease.expires_at_s]
        elif lease.state is _EXPIRING:
            del self._expiring[lease.gpu]


def _same(one: Iterable[object], other: Iterable[object]) -> bool:
    """Whether these are the very same objects, one by one; the two are of one length."""
    return all(map(is_, one, other))


_GPU, _LEASE_ID, _STATE = attrgetter("gpu"), attrgetter("lease_id"), attrgetter("state")
_GRANTED, _EXPIRING = LeaseState.GRANTED, LeaseState.EXPIRING
