"""Leases by GPU, with what a round asks of them kept up to date: those of an app, and when the first one ends."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping

from themis.cluster import GpuId
from themis.errors import InvariantError
from themis.leases import Lease
from themis.lifecycle import LeaseState


class LeaseIndex:
    """At most one lease for each GPU. A round asks once for every app, so nothing here looks at the leases of others.

    Leases of an app stand in the order in which their GPUs came in, as in `by_gpu`: sums over them do not depend on
    the leases of others.
    """

    __slots__ = ("_by_app", "_by_gpu", "_ends")

    def __init__(self) -> None:
        self._by_gpu: dict[GpuId, Lease] = {}
        self._by_app: dict[str, dict[GpuId, Lease]] = {}
        self._ends: Counter[float] = Counter()

    @property
    def by_gpu(self) -> Mapping[GpuId, Lease]:
        """Every lease by its GPU, in the order in which the GPUs came in."""
        return self._by_gpu

    @property
    def holders(self) -> Collection[str]:
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
        before = self._by_gpu.get(lease.gpu)
        if before is not None:
            self._count_end(before, -1)
            if before.app_id != lease.app_id:
                self._take_from(before)
        self._by_gpu[lease.gpu] = lease
        self._by_app.setdefault(lease.app_id, {})[lease.gpu] = lease
        self._count_end(lease, 1)
        return before

    def drop(self, gpu: GpuId) -> Lease | None:
        """Take the lease of a GPU out; None when there is none."""
        lease = self._by_gpu.pop(gpu, None)
        if lease is not None:
            self._take_from(lease)
            self._count_end(lease, -1)
        return lease

    def validate(self) -> None:
        """Assert that what is kept by app and by end is what the leases say."""
        by_app: dict[str, dict[GpuId, Lease]] = {}
        for gpu, lease in self._by_gpu.items():
            by_app.setdefault(lease.app_id, {})[gpu] = lease
        ends = Counter(lease.expires_at_s for lease in self._by_gpu.values() if lease.state is LeaseState.GRANTED)
        if by_app != self._by_app or ends != self._ends:
            raise InvariantError("the leases and their index differ", value=sorted({*by_app, *self._by_app}))

    def _take_from(self, lease: Lease) -> None:
        mine = self._by_app[lease.app_id]
        del mine[lease.gpu]
        if not mine:
            del self._by_app[lease.app_id]

    def _count_end(self, lease: Lease, more: int) -> None:
        if lease.state is LeaseState.GRANTED:
            self._ends[lease.expires_at_s] += more
            if not self._ends[lease.expires_at_s]:
                del self._ends[lease.expires_at_s]
