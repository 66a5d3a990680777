"""GPUs without a job, dealt out in gangs on which jobs are fastest. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence

from am.agent.model.views import GangAt, JobView, gang_at
from am.jobs.promised import FreeGpus
from themis.apps import JobShape
from themis.cluster import Allocation, Cluster, GpuId, Level

SlotKey = tuple[str, int]


def by_place(gpu: GpuId) -> tuple[str, int]:
    """Sorts GPUs as they compare: machine by machine. As a key it is several times as fast as comparing GPU to GPU."""
    return gpu.machine_id, gpu.index


def tasks_of(gpus: Iterable[GpuId], gpus_per_task: int) -> tuple[tuple[GpuId, ...], ...]:
    """The GPUs of each task of a gang: machine by machine, `gpus_per_task` each; a rest too small is left out."""
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
    """GPUs that span a level, without their machines: over several of these with the unit in which they lie there."""
    return GangAt(len(gpus), level) if level <= Level.MACHINE else gang_at(Allocation.of_gpus(gpus), level)


class Pool:
    """GPUs by slot. Most requests are met by one slot; only the others look at machines and racks.

    Slots stand in order of their keys.
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
        """All that are left."""
        return frozenset(gpu for group in self._slots.values() for gpu in group)

    @property
    def free(self) -> FreeGpus:
        """All that are left, without their names."""
        slots: dict[str, list[int]] = {}
        for (machine_id, _), group in sorted(self._slots.items()):
            slots.setdefault(machine_id, []).append(len(group))
        return FreeGpus(
            by_machine={machine_id: sum(counts) for machine_id, counts in slots.items()},
            slots=slots,
            rack_of={machine_id: self._rack_of(machine_id) for machine_id in slots},
        )

    def holds(self, shape: JobShape) -> bool:
        """True when they make a gang for such a job."""
        by_machine: dict[str, int] = {}
        for (machine_id, _), group in self._slots.items():
            by_machine[machine_id] = by_machine.get(machine_id, 0) + len(group)
        return sum(count // shape.gpus_per_task for count in by_machine.values()) >= shape.min_tasks

    def plus(self, gpus: Sequence[GpuId]) -> Pool:
        """A pool of its own, with these GPUs too."""
        more = Pool(gpus, self._cluster)
        for key, group in self._slots.items():
            more._slots[key] = sorted((*group, *more._slots[key]), key=by_place) if key in more._slots else list(group)
        if gpus:
            more._slots = dict(sorted(more._slots.items()))
        return more

    def take(self, job: JobView, size: int) -> tuple[GpuId, ...]:
        """The gang of up to `size` GPUs on which a job is fastest, in whole tasks: fewer that lie nearer may be.

        Of the GPUs of one slot, one machine, one rack or all together; equals go to the nearer level, there best fit.
        Empty when the job's smallest gang cannot be had in whole tasks.
        """
        return self._taken(job, size)[0]

    def lay(self, jobs: Sequence[JobView], sizes: Sequence[int]) -> list[GangAt]:
        """Where a gang of each size would lie for each of the first jobs, taken one after the other, as they count.

        Nothing is taken; gangs that do not fit have no GPU.
        """
        laid = self._laid_in_slots(jobs, sizes)
        if laid is not None:
            return laid
        rest = self.plus(())
        taken = (rest._taken(job, size) for job, size in zip(jobs, sizes, strict=False))
        return [_gang(gpus, level) for gpus, level in taken]

    def _laid_in_slots(self, jobs: Sequence[JobView], sizes: Sequence[int]) -> list[GangAt] | None:
        """`lay` where every gang lies in a slot, for which the sizes of slots are enough to know; else None."""
        counts = list(map(len, self._slots.values()))
        largest = max(counts, default=0)
        # Slots by how many GPUs they have left.
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
        """These GPUs as a gang counts."""
        return _gang(gpus, self.level_of(gpus))

    def level_of(self, gpus: Iterable[GpuId]) -> Level:
        """The level that these GPUs span."""
        return self._cluster.level_of_gpus(gpus)

    def _taken(self, job: JobView, size: int) -> tuple[tuple[GpuId, ...], Level]:
        """`take`, with the level that the gang spans."""
        wanted = job.shape.usable_gpus(size)
        if not wanted:
            return (), Level.SLOT
        slot = self._tightest_slot(wanted)
        if slot is not None:
            # More cannot be had, and farther away as many are no faster.
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
        """Of the slots that hold so many GPUs the one that fits best, the first of equals by its key."""
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
        """The first GPUs of a slot, taken out."""
        group = self._slots[slot]
        if count == len(group):
            del self._slots[slot]
        else:
            self._slots[slot] = group[count:]
        return tuple(group[:count])

    def _groups(self) -> Iterator[Iterable[Sequence[GpuId]]]:
        """GPUs by slot, by machine, by rack, and all together; smaller groups of a kind first (best fit)."""
        yield _smaller_first(self._slots.values())
        machines = _merged((key[0], self._slots[key]) for key in sorted(self._slots))
        yield _smaller_first(machines.values())
        yield _smaller_first(_merged((self._rack_of(name), group) for name, group in machines.items()).values())
        yield [[gpu for group in machines.values() for gpu in group]]

    def _slot_of(self, gpu: GpuId) -> SlotKey:
        return gpu.machine_id, self._cluster.machine(gpu.machine_id).slot_of(gpu.index)

    def _rack_of(self, machine_id: str) -> str:
        return self._cluster.machine(machine_id).rack_id

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
    """The largest gang, up to `wanted` GPUs, that one of the groups can make for a job; the first of equals."""
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
    """Up to `size` GPUs in whole units, from the machines with most of them, so that few machines take part."""
    if group[0].machine_id == group[-1].machine_id:
        return tuple(group[: min(size, len(group)) // unit * unit])
    by_machine: dict[str, list[tuple[GpuId, ...]]] = {}
    for task in tasks_of(group, unit):
        by_machine.setdefault(task[0].machine_id, []).append(task)
    ordered = sorted(by_machine.values(), key=lambda tasks: (-len(tasks), tasks[0][0].machine_id))
    tasks = [task for tasks in ordered for task in tasks][: size // unit]
    return tuple(sorted([gpu for task in tasks for gpu in task], key=by_place))
