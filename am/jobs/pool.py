"""The app's idle GPUs by id, from which jobs take the gangs on which they are fastest. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from am.agent.model.views import GangAt, JobView, gang_at
from themis.apps import JobShape
from themis.bids import FreeMachine, PlacedGang
from themis.cluster import Allocation, Cluster, GpuId, Level
from themis.placement.best_fit import best_fit
from themis.placement.free_capacity import FreeCapacity
from themis.placement.gpu_choice import choose_gpus, count_by_slot, mask_of, masks_of
from themis.speeds import SAME_SPEED


def by_place(gpu: GpuId) -> tuple[str, int]:
    """Sort key for GPUs, machine by machine. It is several times faster than comparing GPU with GPU."""
    return gpu.machine_id, gpu.index


def tasks_of(gpus: Iterable[GpuId], gpus_per_task: int) -> tuple[tuple[GpuId, ...], ...]:
    """The GPUs of each task of a gang: machine by machine, `gpus_per_task` each. A smaller rest is left out."""
    by_machine: dict[str, list[GpuId]] = {}
    for gpu in sorted(gpus, key=by_place):
        by_machine.setdefault(gpu.machine_id, []).append(gpu)
    return tuple(
        tuple(members[first : first + gpus_per_task])
        for members in by_machine.values()
        for first in range(0, len(members) - gpus_per_task + 1, gpus_per_task)
    )


def speed_of(job: JobView, gpus: int, level: Level) -> float:
    """Throughput of a job on a gang, in units of one GPU at S = 1."""
    return job.shape.usable_gpus(gpus) / job.slowdown.at(level)


class Pool:
    """Idle GPUs of one device type, from which jobs take gangs. Each gang goes where `themis.placement` puts it."""

    def __init__(self, gpus: Iterable[GpuId], cluster: Cluster) -> None:
        self._cluster = cluster
        self._masks = masks_of(gpus)
        self._capacity = FreeCapacity(map(self._free_machine, self._masks))

    def __len__(self) -> int:
        return self._capacity.gpus

    @property
    def gpus(self) -> frozenset[GpuId]:
        """All GPUs of the pool."""
        return frozenset(
            [gpu for name, mask in self._masks.items() for gpu in self._cluster.gpus_of(name) if mask >> gpu.index & 1]
        )

    def machines(self) -> tuple[FreeMachine, ...]:
        """The GPUs as counts by machine and slot."""
        return self._capacity.machines()

    def usable(self, gpus_per_task: int) -> int:
        """The number of these GPUs that tasks of this size can use; no task spans machines."""
        return sum(self._capacity.units(gpus_per_task).values()) * gpus_per_task

    def holds(self, shape: JobShape) -> bool:
        """Whether the pool has GPUs for the smallest gang of a job of this shape."""
        return self.usable(shape.gpus_per_task) >= shape.demand_min_gpus

    def copy(self) -> Pool:
        """An independent pool of the same GPUs."""
        return Pool(self.gpus, self._cluster)

    def plus(self, gpus: Iterable[GpuId]) -> Pool:
        """An independent pool that has these GPUs too."""
        return Pool((*self.gpus, *gpus), self._cluster)

    def take(self, job: JobView, size: int) -> tuple[GpuId, ...]:
        """Take the gang of up to `size` GPUs on which a job is fastest, in whole tasks.

        Example: m0 has 3 idle GPUs and m1 has 2. A job with tasks of 2 GPUs asks for 4. It gets 2 GPUs of each machine,
        since no task spans machines. The third GPU of m0 stays in the pool.

        Returns:
            The GPUs; empty if there is no gang in whole tasks for the job.
        """
        gang = _take(self._capacity, job, size)
        if gang is None:
            return ()
        taken: list[GpuId] = []
        for machine_id, count in gang.gpus:
            machine, mask = self._cluster.machine(machine_id), self._masks[machine_id]
            # The capacity took as many GPUs of each slot.
            indices = sorted(choose_gpus(machine.slots, mask, 0, count, gang.slot))
            self._masks[machine_id] = mask & ~mask_of(indices)
            taken += [GpuId(machine_id, index) for index in indices]
        return tuple(taken)

    def place_in_turn(self, jobs: Sequence[JobView], sizes: Sequence[int]) -> list[GangAt]:
        """The size and level of the gang that each of the first jobs would get, one after the other. Takes nothing.

        A gang that does not fit has no GPU.
        """
        rest = self._capacity.copy()
        gangs = [_take(rest, job, size) for job, size in zip(jobs, sizes, strict=False)]
        return [gang_at(gang.gpus, gang.level) if gang else GangAt(0, Level.SLOT) for gang in gangs]

    def gang_of(self, gpus: Sequence[GpuId]) -> GangAt:
        """What a gang on these GPUs counts as."""
        return gang_at(Allocation.of_gpus(gpus), self.level_of(gpus))

    def level_of(self, gpus: Iterable[GpuId]) -> Level:
        """The level that these GPUs span."""
        return self._cluster.level_of_gpus(gpus)

    def _free_machine(self, machine_id: str) -> FreeMachine:
        machine = self._cluster.machine(machine_id)
        return FreeMachine(
            machine_id=machine_id,
            rack_id=machine.rack_id,
            free_slots=count_by_slot(machine.slots, self._masks[machine_id]),
            device=machine.device,
        )


def _take(capacity: FreeCapacity, job: JobView, size: int) -> PlacedGang | None:
    """Take the best fit of up to `size` GPUs for a job. Returns None if no gang in whole tasks fits."""
    wanted = job.shape.usable_gpus(size)
    # The job's times are those on the device type of the pool.
    gang = best_fit(capacity, replace(job.demand, max_gpus=wanted, speeds=SAME_SPEED)) if wanted else None
    if gang is not None:
        capacity.take(gang)
    return gang
