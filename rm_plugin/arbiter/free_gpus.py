"""The GPUs of a cluster that may be granted, by id: without a live lease, not closed, on a machine that is up."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from themis.bids import FreeMachine
from themis.cluster import Cluster, GpuId, Machine
from themis.errors import InvariantError
from themis.placement.gpu_choice import count_by_slot, masks_of


class FreeGpus:
    """Tracks free GPUs. The lease table reports every leased or returned GPU, and every lost or regained machine.

    The GPUs of a machine are a bit mask (`themis.placement.gpu_choice`). `FreeCapacity` holds the same GPUs as counts.
    """

    __slots__ = (
        "_available",
        "_closed",
        "_cluster",
        "_free",
        "_leased",
        "_lost",
        "_offers",
        "_outdated",
        "count",
        "version",
    )

    def __init__(self, cluster: Cluster, lost: Iterable[str] = ()) -> None:
        self._leased: dict[str, int] = {}
        self._closed: frozenset[GpuId] = frozenset()
        self._lost = {cluster.machine(machine_id).machine_id for machine_id in lost}
        # The last offer of each machine, with its GPUs as a mask. Offers of `_outdated` machines may be outdated.
        self._offers: dict[str, tuple[int, FreeMachine]] = {}
        self._outdated: set[str] = set()
        self._cluster = cluster
        # Read-only for others: the number of free GPUs, and a version that grows whenever they may have changed.
        self.count = self.version = 0
        self._find_all()

    @property
    def lost(self) -> frozenset[str]:
        """Machines that are lost."""
        return frozenset(self._lost)

    @property
    def closed(self) -> frozenset[GpuId]:
        """GPUs that are not granted to anyone."""
        return self._closed

    @property
    def by_machine(self) -> Mapping[str, int]:
        """The free GPUs of every machine, machines in the cluster's order."""
        return self._free

    @property
    def gpus_available(self) -> int:
        """GPUs of all machines that are not lost, leased ones included."""
        return self._cluster.gpus - sum(self._cluster.machine(machine_id).gpus for machine_id in self._lost)

    def gpus(self) -> list[GpuId]:
        """Every free GPU, machine by machine."""
        return [
            gpu
            for machine_id, free in self._free.items()
            if free
            for gpu in self._cluster.gpus_of(machine_id)
            if free >> gpu.index & 1
        ]

    def offered(self, renewable: Iterable[GpuId]) -> tuple[FreeMachine, ...]:
        """Every machine with its free and renewable GPUs by slot."""
        up = masks_of(renewable)
        for machine_id in (self._outdated | up.keys()) & self._free.keys():
            gpus, offer = self._free[machine_id] | up.get(machine_id, 0), self._offers.get(machine_id)
            if offer is None or offer[0] != gpus:
                self._offers[machine_id] = self._offer(self._cluster.machine(machine_id), gpus)
        # In the next round renewable GPUs are leased or free.
        self._outdated = set(up)
        return tuple([self._offers[machine.machine_id][1] for machine in self._cluster.machines])

    # ---- changing ----

    def lease(self, gpu: GpuId) -> None:
        """Mark a GPU as leased. Raises InvariantError for a negative index."""
        if gpu.index < 0:
            raise InvariantError("a lease is on a GPU that no machine can have", value=str(gpu))
        self._leased[gpu.machine_id] = self._leased.get(gpu.machine_id, 0) | 1 << gpu.index
        self._forget(gpu.machine_id)

    def give_back(self, gpu: GpuId) -> None:
        """Mark a GPU as not leased."""
        self._leased[gpu.machine_id] &= ~(1 << gpu.index)
        self._forget(gpu.machine_id)

    def lose(self, machine_id: str) -> None:
        """Mark a machine as lost. Raises UnknownNameError for a machine that the cluster does not have."""
        self._lost.add(self._cluster.machine(machine_id).machine_id)
        self._available[machine_id] = 0
        self._forget(machine_id)

    def regain(self, machine_id: str) -> None:
        """Mark a machine as up again. Raises UnknownNameError for a machine that the cluster does not have."""
        machine = self._cluster.machine(machine_id)
        self._lost.discard(machine_id)
        self._available[machine_id] = self._givable_of(machine)
        self._forget(machine_id)

    def close(self, gpus: Collection[GpuId]) -> None:
        """Replace the set of closed GPUs. Raises UnknownNameError for a machine that the cluster does not have."""
        for machine_id in {gpu.machine_id for gpu in gpus}:
            self._cluster.machine(machine_id)
        self._closed = frozenset(gpus)
        self._find_all()

    def refit(self, cluster: Cluster) -> None:
        """Replace the cluster. It must have all machines with leases, unchanged."""
        self._lost &= {machine.machine_id for machine in cluster.machines}
        self._closed = frozenset(gpu for gpu in self._closed if gpu in cluster.gpu_set)
        self._leased = {machine_id: gpus for machine_id, gpus in self._leased.items() if gpus}
        self._offers.clear()
        self._cluster = cluster
        self._find_all()

    # ---- inside ----

    def _find_all(self) -> None:
        """Recompute everything, after rare changes of the cluster or of closed GPUs."""
        self._available = self._givable()
        self._free = self._without(self._leased)
        self._outdated = set(self._available)
        self.count = sum([gpus.bit_count() for gpus in self._free.values()])
        self.version += 1

    def _forget(self, machine_id: str) -> None:
        """Update one machine, after a change of it or of its leases."""
        # `validate` reports leases on machines that the cluster does not have.
        if machine_id in self._available:
            self._outdated.add(machine_id)
            gpus = self._available[machine_id] & ~self._leased.get(machine_id, 0)
            self.count += gpus.bit_count() - self._free[machine_id].bit_count()
            self.version += 1
            self._free[machine_id] = gpus

    def _givable(self) -> dict[str, int]:
        """The GPUs of every machine that may be granted when they are not leased."""
        closed = masks_of(self._closed)
        there = {machine.machine_id: _all_of(machine) for machine in self._cluster.machines}
        for machine_id, gpus in closed.items():
            there[machine_id] &= ~gpus
        return there | dict.fromkeys(self._lost, 0)

    def _givable_of(self, machine: Machine) -> int:
        """Those of one machine."""
        if machine.machine_id in self._lost:
            return 0
        closed = masks_of(gpu for gpu in self._closed if gpu.machine_id == machine.machine_id)
        return _all_of(machine) & ~closed.get(machine.machine_id, 0)

    def _without(self, leased: Mapping[str, int]) -> dict[str, int]:
        return {machine_id: there & ~leased.get(machine_id, 0) for machine_id, there in self._available.items()}

    @staticmethod
    def _offer(machine: Machine, gpus: int) -> tuple[int, FreeMachine]:
        """The offer of a machine, with its GPUs as a mask."""
        slots = count_by_slot(machine.slots, gpus)
        return gpus, FreeMachine(
            machine_id=machine.machine_id, rack_id=machine.rack_id, free_slots=slots, device=machine.device
        )

    # ---- invariants ----

    def validate(self, cluster: Cluster, leased: Mapping[str, int]) -> None:
        """Assert that all indexes agree with the leased GPUs; a broken invariant raises InvariantError.

        Args:
            cluster: The cluster.
            leased: The GPUs with a live lease by machine, taken from the leases.
        """
        if self._cluster is not cluster:
            raise InvariantError("the free GPUs belong to another cluster", value=self._cluster.name)
        if {machine_id: gpus for machine_id, gpus in self._leased.items() if gpus} != leased:
            raise InvariantError("the record of leased GPUs differs from the leases", value=dict(self._leased))
        there = self._givable()
        if self._available != there or list(self._free) != list(there):
            raise InvariantError(
                "the record of GPUs that may be leased differs from the cluster", value=self._available
            )
        for machine_id, gpus in leased.items():
            if machine_id in self._lost:
                raise InvariantError("a lease is on a lost machine", value=machine_id)
            if machine_id not in there or gpus & ~_all_of(cluster.machine(machine_id)):
                raise InvariantError("a lease is on a GPU that the cluster does not have", value=machine_id)
        if self._without(leased) != self._free or self.count != len(self.gpus()):
            raise InvariantError("the record of free GPUs is wrong", value=dict(self._free))
        for machine_id in self._offers:
            if machine_id not in there or not self._is_kept_up(cluster.machine(machine_id)):
                raise InvariantError("a cached offer differs from the free GPUs", value=self._offers[machine_id][1])

    def validate_machine(self, machine: Machine, leased: int) -> None:
        """`validate` for one machine, given its GPUs with a live lease."""
        machine_id = machine.machine_id
        if self._leased.get(machine_id, 0) != leased:
            raise InvariantError("the record of leased GPUs differs from the leases", value=machine_id)
        if leased and machine_id in self._lost:
            raise InvariantError("a lease is on a lost machine", value=machine_id)
        if self._available.get(machine_id) != self._givable_of(machine):
            raise InvariantError("the record of GPUs that may be leased differs from the cluster", value=machine_id)
        if self._free.get(machine_id) != self._available[machine_id] & ~leased:
            raise InvariantError("the record of free GPUs is wrong", value=machine_id)
        if machine_id in self._offers and not self._is_kept_up(machine):
            raise InvariantError("a cached offer differs from the free GPUs", value=self._offers[machine_id][1])

    def _is_kept_up(self, machine: Machine) -> bool:
        """Whether a machine's last offer matches its mask, and the mask is current or known to be outdated."""
        gpus, offer = self._offers[machine.machine_id]
        known = machine.machine_id in self._outdated or gpus == self._free[machine.machine_id]
        return known and offer.free_slots == count_by_slot(machine.slots, gpus)


def _all_of(machine: Machine) -> int:
    """All GPUs of a machine."""
    return (1 << machine.gpus) - 1
