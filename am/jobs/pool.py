"""The app's idle GPUs by id, from which jobs take the gangs on which they are fastest. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence

from am.agent.model.views import GangAt, JobView, gang_at
from themis.apps import JobShape
from themis.bids import FreeMachine
from themis.cluster import Allocation, Cluster, GpuId, Level
from themis.placement.gpu_choice import count_by_slot, masks_of

SlotKey = tuple[str, int]


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


def _gang(gpus: Sequence[GpuId], level: Level) -> GangAt:
    """A gang without its machines. Over several of them it keeps the unit in which its GPUs are together."""
    return GangAt(len(gpus), level) if level <= Level.MACHINE else gang_at(Allocation.of_gpus(gpus), level)


class Pool:
    """Idle GPUs by slot. Usually one slot holds a gang; otherwise machines and racks are searched.

    Best fit here breaks ties differently from `themis.placement`, and both rules decide runs. Among equally free slots
    the smaller (machine id, slot) is taken, whatever else is free on the machine. A gang over machines takes the
    fullest machines first, also for its last GPUs.
    """

    def __init__(self, gpus: Iterable[GpuId], cluster: Cluster) -> None:
        self._cluster = cluster
        self._slots: dict[SlotKey, list[GpuId]] = {}
        for gpu in sorted(gpus, key=by_place):
            self._slots.setdefault(self._slot_of(gpu), []).append(gpu)

    def __len__(self) -> int:
        return sum(map(len, self._slots.values()))

    @property
    def gpus(self) -> frozenset[GpuId]:
        """All GPUs of the pool."""
        return frozenset(gpu for group in self._slots.values() for gpu in group)

    def machines(self) -> tuple[FreeMachine, ...]:
        """The GPUs as counts by machine and slot."""
        machines = [
            (self._cluster.machine(machine_id), mask) for machine_id, mask in sorted(masks_of(self.gpus).items())
        ]
        return tuple(
            FreeMachine(
                machine_id=machine.machine_id,
                rack_id=machine.rack_id,
                free_slots=count_by_slot(machine.slots, mask),
                device=machine.device,
            )
            for machine, mask in machines
        )

    def usable(self, gpus_per_task: int) -> int:
        """How many of the GPUs tasks of this size can use."""
        by_machine: dict[str, int] = {}
        for (machine_id, _), group in self._slots.items():
            by_machine[machine_id] = by_machine.get(machine_id, 0) + len(group)
        return sum(count // gpus_per_task for count in by_machine.values()) * gpus_per_task

    def holds(self, shape: JobShape) -> bool:
        """Whether they make a gang for such a job."""
        return self.usable(shape.gpus_per_task) >= shape.demand_min_gpus

    def copy(self) -> Pool:
        """An independent pool of the same GPUs."""
        return self.plus(())

    def plus(self, gpus: Sequence[GpuId]) -> Pool:
        """An independent pool that has these GPUs too."""
        more = Pool(gpus, self._cluster)
        for key, group in self._slots.items():
            more._slots[key] = sorted((*group, *more._slots[key]), key=by_place) if key in more._slots else list(group)
        if gpus:
            more._slots = dict(sorted(more._slots.items()))
        return more

    def take(self, job: JobView, size: int) -> tuple[GpuId, ...]:
        """Take the gang of up to `size` GPUs on which a job is fastest, in whole tasks.

        Candidates are the best-fit gangs in a slot, on a machine, in a rack and over all GPUs: fewer GPUs at a tighter
        level may be faster. Ties go to the tighter level.

        Returns:
            The GPUs; empty if there is no gang in whole tasks for the job.
        """
        return self._taken(job, size)[0]

    def lay(self, jobs: Sequence[JobView], sizes: Sequence[int]) -> list[GangAt]:
        """What gangs of these sizes count as if the first jobs take them, one after the other. Takes nothing.

        A gang that does not fit has no GPU.
        """
        laid = self._laid_in_slots(jobs, sizes)
        if laid is not None:
            return laid
        rest = self.copy()
        taken = (rest._taken(job, size) for job, size in zip(jobs, sizes, strict=False))
        return [_gang(gpus, level) for gpus, level in taken]

    def _laid_in_slots(self, jobs: Sequence[JobView], sizes: Sequence[int]) -> list[GangAt] | None:
        """`lay` if every gang is in a slot: then the sizes of slots are enough. Returns None otherwise."""
        counts = list(map(len, self._slots.values()))
        largest = max(counts, default=0)
        # Number of slots by idle GPUs.
        slots = [0] * (largest + 1)
        for count in counts:
            slots[count] += 1
        known: dict[int, GangAt] = {}
        laid = []
        for job, size in zip(jobs, sizes, strict=False):
            wanted = job.shape.usable_gpus(size)
            if wanted:
                fit = wanted
                while fit <= largest and not slots[fit]:
                    fit += 1
                if fit > largest:
                    return None
                slots[fit] -= 1
                slots[fit - wanted] += 1
            gang = known.get(wanted)
            if gang is None:
                gang = known[wanted] = GangAt(wanted, Level.SLOT)
            laid.append(gang)
        return laid

    def gang_of(self, gpus: Sequence[GpuId]) -> GangAt:
        """What a gang on these GPUs counts as."""
        return _gang(gpus, self.level_of(gpus))

    def level_of(self, gpus: Iterable[GpuId]) -> Level:
        """The level that these GPUs span."""
        return self._cluster.level_of_gpus(gpus)

    def _taken(self, job: JobView, size: int) -> tuple[tuple[GpuId, ...], Level]:
        """`take`; also returns the level that the gang spans."""
        wanted = job.shape.usable_gpus(size)
        if not wanted:
            return (), Level.SLOT
        slot = self._tightest_slot(wanted)
        if slot is not None:
            # A slot holds all wanted GPUs: no other place is faster.
            return self._cut(slot, wanted), Level.SLOT
        best: tuple[GpuId, ...] = ()
        nearest, most = Level.SLOT, 0.0
        for groups in self._groups():
            gang = _largest(groups, job, wanted)
            level = self.level_of(gang)
            speed = speed_of(job, len(gang), level) if gang else 0.0
            if speed > most:
                best, nearest, most = gang, level, speed
            if len(gang) == wanted:
                break
        return self._remove(best), nearest

    def _tightest_slot(self, wanted: int) -> SlotKey | None:
        """The slot with the fewest GPUs that has at least `wanted`; ties: the smaller key."""
        best: SlotKey | None = None
        least = math.inf
        for key, group in self._slots.items():
            count = len(group)
            if wanted <= count < least:
                if count == wanted:
                    return key
                best, least = key, count
        return best

    def _cut(self, slot: SlotKey, count: int) -> tuple[GpuId, ...]:
        """Take the first GPUs of a slot."""
        group = self._slots[slot]
        if count == len(group):
            del self._slots[slot]
        else:
            self._slots[slot] = group[count:]
        return tuple(group[:count])

    def _groups(self) -> Iterator[Iterable[Sequence[GpuId]]]:
        """Yield GPUs by slot, by machine, by rack, and all together; each time the smaller groups first (best fit)."""
        yield _smaller_first(self._slots.values())
        machines = _merged((key[0], self._slots[key]) for key in sorted(self._slots))
        yield _smaller_first(machines.values())
        racks = _merged((self._cluster.machine(name).rack_id, group) for name, group in machines.items())
        yield _smaller_first(racks.values())
        yield [[gpu for group in machines.values() for gpu in group]]

    def _slot_of(self, gpu: GpuId) -> SlotKey:
        return gpu.machine_id, self._cluster.machine(gpu.machine_id).slot_of(gpu.index)

    def _remove(self, gpus: tuple[GpuId, ...]) -> tuple[GpuId, ...]:
        for gpu in gpus:
            key = self._slot_of(gpu)
            self._slots[key].remove(gpu)
            if not self._slots[key]:
                del self._slots[key]
        return gpus


def _merged(groups: Iterable[tuple[str, Sequence[GpuId]]]) -> dict[str, list[GpuId]]:
    merged: dict[str, list[GpuId]] = {}
    for name, group in groups:
        merged.setdefault(name, []).extend(group)
    return merged


def _smaller_first(groups: Iterable[Sequence[GpuId]]) -> list[Sequence[GpuId]]:
    return sorted(groups, key=lambda group: (len(group), by_place(group[0])))


def _largest(groups: Iterable[Sequence[GpuId]], job: JobView, wanted: int) -> tuple[GpuId, ...]:
    """The largest gang, up to `wanted` GPUs, that one of the groups makes for a job; ties: the first group."""
    best: tuple[GpuId, ...] = ()
    for group in groups:
        if len(group) > len(best):
            gang = _fullest_first(group, wanted, job.shape.gpus_per_task)
            if len(gang) > len(best) and len(gang) >= job.shape.demand_min_gpus:
                best = gang
                if len(best) == wanted:
                    break
    return best


def _fullest_first(group: Sequence[GpuId], size: int, unit: int) -> tuple[GpuId, ...]:
    """Up to `size` GPUs in whole units, from the machines with the most units first, so that few machines are used."""
    if group[0].machine_id == group[-1].machine_id:
        return tuple(group[: min(size, len(group)) // unit * unit])
    by_machine: dict[str, list[tuple[GpuId, ...]]] = {}
    for task in tasks_of(group, unit):
        by_machine.setdefault(task[0].machine_id, []).append(task)
    ordered = sorted(by_machine.values(), key=lambda tasks: (-len(tasks), tasks[0][0].machine_id))
    tasks = [task for tasks in ordered for task in tasks][: size // unit]
    return tuple(sorted([gpu for task in tasks for gpu in task], key=by_place))
