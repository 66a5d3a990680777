"""Which job runs on which of the app's GPUs: pure, from what is leased and what runs to what should change.

Running jobs stay where they are while all their GPUs stay. GPUs without a job go to waiting jobs, longest first, in
gangs that lie as near as possible; then to running jobs that would gain more than a restart costs; what nobody can use
goes back to the ResourceManager.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from am.agent.demands import pays_above
from am.agent.views import GangAt, JobView
from am.jobs.division import best_sizes
from themis.cluster import Cluster, GpuId, Level


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedJob:
    """A job of the current phase. `gpus` it holds now; `stopping` when its tasks are already on their way out."""

    view: JobView
    gpus: tuple[GpuId, ...] = ()
    stopping: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Holdings:
    """The app's GPUs: `granted` to use now, `reserved` ones that others are still giving back, `expiring` ones."""

    granted: frozenset[GpuId] = frozenset()
    reserved: frozenset[GpuId] = frozenset()
    expiring: frozenset[GpuId] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What should change. `stop` gives the reason by job; `start` and `wait` the GPUs by job.

    Jobs in `wait` start on their GPUs as soon as the reserved ones among them are granted.
    """

    stop: Mapping[str, str] = field(default_factory=dict)
    start: Mapping[str, tuple[GpuId, ...]] = field(default_factory=dict)
    wait: Mapping[str, tuple[GpuId, ...]] = field(default_factory=dict)
    release: tuple[GpuId, ...] = ()


def make_plan(
    jobs: Sequence[PlannedJob],
    others: Mapping[str, tuple[GpuId, ...]],
    holdings: Holdings,
    cluster: Cluster,
    restart_s: float,
) -> Plan:
    """Plan the app's GPUs.

    Args:
        jobs: Jobs of the current phase that have not reached their target.
        others: GPUs by job of tasks that still run though their job should not: it lost, or the app is ending.
        holdings: What is leased.
        cluster: For levels and racks.
        restart_s: What moving a running job costs, in seconds.
    """
    usable = holdings.granted | holdings.reserved
    stop = {job.view.job_id: "its GPUs are taken back" for job in jobs if not usable.issuperset(job.gpus)}
    stop |= dict.fromkeys(others, "the tuner stopped it")
    busy = {gpu for job in jobs for gpu in job.gpus} | {gpu for gpus in others.values() for gpu in gpus}
    idle = _Pool(usable - busy, cluster)
    start, wait = _serve_waiting(jobs, idle, holdings, restart_s)
    # A job that is being stopped will want a gang in a moment: nothing is grown or given back before that is settled.
    settled = not any(job.stopping for job in jobs) and not stop
    if settled and not wait:
        stop |= _grow(jobs, idle, restart_s)
    moving = any(job.stopping or job.view.job_id in stop for job in jobs)
    release = () if moving or wait else tuple(sorted(idle.gpus & holdings.granted, key=by_place))
    already = {job.view.job_id for job in jobs if job.stopping}
    return Plan(
        stop={job: why for job, why in stop.items() if job not in already}, start=start, wait=wait, release=release
    )


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


def by_place(gpu: GpuId) -> tuple[str, int]:
    """Sorts GPUs as they compare: machine by machine. As a key it is several times as fast as comparing GPU to GPU."""
    return gpu.machine_id, gpu.index


def _serve_waiting(
    jobs: Sequence[PlannedJob], idle: _Pool, holdings: Holdings, restart_s: float
) -> tuple[dict[str, tuple[GpuId, ...]], dict[str, tuple[GpuId, ...]]]:
    """Gangs for the waiting jobs, longest job first and largest gang first, in sizes of `best_sizes`."""
    start: dict[str, tuple[GpuId, ...]] = {}
    wait: dict[str, tuple[GpuId, ...]] = {}
    if not idle.gpus:
        return start, wait
    waiting = sorted((job for job in jobs if not job.gpus), key=lambda job: (-job.view.serial_work_s, job.view.job_id))
    if not waiting:
        return start, wait
    running = [(job.view, GangAt(len(job.gpus), idle.level_of(job.gpus))) for job in jobs if job.gpus]
    unit = min(job.view.shape.gpus_per_task for job in waiting)
    whole = len(tasks_of(idle.gpus, unit)) * unit
    views = [job.view for job in waiting]
    sizes = best_sizes(views, running, whole, lambda sizes: idle.plus(()).lay(views, sizes), restart_s)
    for job, size in zip(waiting, sizes, strict=False):
        gpus = idle.take(job.view, size)
        if gpus:
            (start if set(gpus) <= holdings.granted else wait)[job.view.job_id] = gpus
    return start, wait


def _grow(jobs: Sequence[PlannedJob], idle: _Pool, restart_s: float) -> dict[str, str]:
    """Running jobs to stop so that they start again where they are faster: most work left first, while GPUs are idle.

    That is on more GPUs, or on as many that lie nearer. What a job would move to is what it would get when it starts
    again: whole tasks, which idle GPUs may not make.
    """
    grown: dict[str, str] = {}
    if not idle.gpus:
        return grown
    left = idle
    for job in sorted((job for job in jobs if job.gpus), key=lambda job: (-job.view.serial_work_s, job.view.job_id)):
        if not left.gpus:
            break
        pool = left.plus(job.gpus)
        gang = pool.take(job.view, len(pool.gpus))
        now = GangAt(len(job.gpus), idle.level_of(job.gpus))
        if _speed(job.view, len(gang), idle.level_of(gang)) > pays_above(job.view, now, restart_s):
            grown[job.view.job_id] = "it grows"
            left = pool
    return grown


def _speed(job: JobView, gpus: int, level: Level) -> float:
    """Throughput of a job on a gang, in units of one GPU at S = 1."""
    return job.shape.usable_gpus(gpus) / job.slowdown.at(level)


class _Pool:
    """GPUs without a job, dealt out in gangs that lie near."""

    def __init__(self, gpus: frozenset[GpuId], cluster: Cluster) -> None:
        self.gpus = gpus
        self._cluster = cluster

    def take(self, job: JobView, size: int) -> tuple[GpuId, ...]:
        """The gang of up to `size` GPUs on which a job is fastest, in whole tasks: fewer that lie nearer may be.

        Of the GPUs of one slot, one machine, one rack or all together; equals go to the nearer level, there best fit.
        Empty when the job's smallest gang cannot be had in whole tasks.
        """
        best: tuple[GpuId, ...] = ()
        most = 0.0
        wanted = job.shape.usable_gpus(size)
        for groups in self._groups():
            gang = self._largest(groups, job, wanted)
            speed = _speed(job, len(gang), self.level_of(gang)) if gang else 0.0
            if speed > most:
                best, most = gang, speed
            if gang and len(gang) == wanted:
                # More cannot be had, and farther away as many are no faster.
                break
        return self._remove(best)

    def lay(self, jobs: Sequence[JobView], sizes: Sequence[int]) -> list[GangAt]:
        """Take a gang of each size for each of the first jobs, as they count; gangs that do not fit have no GPU."""
        gangs = []
        for job, size in zip(jobs, sizes, strict=False):
            gpus = self.take(job, size)
            gangs.append(GangAt(len(gpus), self.level_of(gpus)))
        return gangs

    def level_of(self, gpus: Iterable[GpuId]) -> Level:
        """The level that these GPUs span."""
        return self._cluster.level_of_gpus(gpus)

    def plus(self, gpus: Iterable[GpuId]) -> _Pool:
        """A pool of its own, with these GPUs too."""
        return _Pool(self.gpus | set(gpus), self._cluster)

    def _groups(self) -> Iterator[Iterable[Sequence[GpuId]]]:
        """Idle GPUs by slot, by machine, by rack, and all together; smaller groups of a kind first (best fit)."""
        ordered = sorted(self.gpus, key=by_place)
        for key in (self._slot, self._machine, self._rack):
            kind: dict[tuple[str, int], list[GpuId]] = {}
            for gpu in ordered:
                kind.setdefault(key(gpu), []).append(gpu)
            yield sorted(kind.values(), key=lambda group: (len(group), by_place(group[0])))
        yield [ordered]

    def _largest(self, groups: Iterable[Sequence[GpuId]], job: JobView, wanted: int) -> tuple[GpuId, ...]:
        """The largest gang, up to `wanted` GPUs, that one of the groups can make for a job; the first of equals."""
        best: tuple[GpuId, ...] = ()
        for group in groups:
            if len(group) > len(best):
                gang = self._fullest_first(group, wanted, job.shape.gpus_per_task)
                if len(gang) > len(best) and len(gang) >= job.shape.demand_min_gpus:
                    best = gang
                    if len(best) == wanted:
                        break
        return best

    def _slot(self, gpu: GpuId) -> tuple[str, int]:
        return gpu.machine_id, self._cluster.machine(gpu.machine_id).slot_of(gpu.index)

    def _machine(self, gpu: GpuId) -> tuple[str, int]:
        return gpu.machine_id, 0

    def _rack(self, gpu: GpuId) -> tuple[str, int]:
        return self._cluster.machine(gpu.machine_id).rack_id, 0

    def _fullest_first(self, group: Iterable[GpuId], size: int, unit: int) -> tuple[GpuId, ...]:
        """Up to `size` GPUs in whole units, from the machines with most of them, so that few machines take part."""
        by_machine: dict[str, list[tuple[GpuId, ...]]] = {}
        for task in tasks_of(group, unit):
            by_machine.setdefault(task[0].machine_id, []).append(task)
        ordered = sorted(by_machine.values(), key=lambda tasks: (-len(tasks), tasks[0][0].machine_id))
        tasks = [task for tasks in ordered for task in tasks][: size // unit]
        return tuple(sorted([gpu for task in tasks for gpu in task], key=by_place))

    def _remove(self, gpus: tuple[GpuId, ...]) -> tuple[GpuId, ...]:
        self.gpus = self.gpus - set(gpus)
        return gpus
