"""The time that an app needs on a bundle: T(G) of the paper's equations 1 and 2, with gangs instead of single GPUs.

Example: a job with 400 s of serial work takes 400 * 1.2 / 4 = 120 s on a gang of 4 GPUs with S = 1.2. Two such jobs on
two such gangs end after 120 s; on one gang they queue, and end after 240 s.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from am.agent.model.views import AppView, ClusterView, GangAt, JobView
from am.agent.packing.makespan import end_times_s
from am.tuners.port import Phase
from themis.apps import JobShape, Slowdown
from themis.cluster import Level
from themis.speeds import SAME_SPEED, Speeds

Seconds = NDArray[np.float64]
Places = NDArray[np.intp]


def job_time_s(job: JobView, gang: GangAt) -> float:
    """Seconds that a job takes on a gang for its iterations left; infinite if the gang is too small.

    Equation 1: iterations_left * serial_iteration_s * S(G) / min(|G|, job_demand_max).
    """
    slowdown, usable = pace_on(job, gang)
    return job.serial_work_s * slowdown / usable if usable else math.inf


def pace_on(job: JobView, gang: GangAt) -> tuple[float, int]:
    """S of a job on a gang divided by its speed there, and the GPUs that it can use: 0 if the gang is too small.

    Jobs of one shape, S and speeds have the same pace.
    """
    shape = job.shape
    usable = shape.usable_gpus(gang.gpus) if gang.holds_tasks_of(shape.gpus_per_task) else 0
    # Most clusters have one type. This is called for all pairs of job and gang.
    slowdown = job.slowdown_on(gang.level, gang.device) if job.speeds.by_type else job.slowdown.at(gang.level)
    return slowdown, usable


def gang_order(gang: GangAt) -> tuple[int, int, int, str]:
    """The sort key that breaks ties between gangs: smaller, then looser, then in smaller units, then by device name.

    So a job leaves to others what it cannot use: a larger gang, or a tighter one.
    """
    return gang.gpus, -gang.level, gang.unit_gpus, gang.device


def job_order(job: JobView) -> tuple[int, float, str]:
    """The sort key by which jobs are put on gangs: largest smallest gang first, then longest; ties: the smaller id.

    Few gangs can run a job that needs many GPUs. If short jobs that any gang can run came first, they would occupy the
    large gangs.
    """
    shape = job.shape
    return -shape.min_tasks * shape.gpus_per_task, -job.iterations_left * job.serial_iteration_s, job.job_id


def longest_first(job: JobView) -> tuple[float, str]:
    """The sort key by which jobs get GPUs: most work left first; ties: the smaller job id."""
    return -job.serial_work_s, job.job_id


def phase_time_s(jobs: Sequence[JobView], gangs: Sequence[GangAt]) -> float:
    """Seconds until the last of `jobs` ends on `gangs`, each gang running one job at a time.

    Jobs are packed in `job_order` and `gang_order` (see `packing.makespan`), so the order of the arguments is
    irrelevant.
    """
    return _phase_time_s(tuple(jobs), _counted(gangs))


def _phase_time_s(jobs: tuple[JobView, ...], gangs: Mapping[GangAt, int]) -> float:
    """`phase_time_s` with identical gangs counted."""
    if not jobs:
        return 0.0
    if not gangs:
        return math.inf
    if len(jobs) == 1:
        return min([job_time_s(jobs[0], gang) for gang in gangs])
    kinds = sorted(gangs, key=gang_order)
    counts = [gangs[kind] for kind in kinds]
    job_times = JobTimes(jobs)
    if job_times.all_alike:
        return _like_jobs_time_s(len(jobs), [job_time_s(jobs[0], kind) for kind in kinds], counts)
    alone_s, first = merged(job_times.times_s(kinds))
    return float(end_times_s(alone_s, np.add.reduceat(np.array([counts], dtype=np.int64), first, axis=1))[0])


class JobTimes:
    """Jobs in `job_order`, with their times on gangs as arrays.

    Attributes:
        jobs: The jobs.
        all_alike: Whether they take equally long on every gang, so that their order is irrelevant.
    """

    def __init__(self, jobs: Sequence[JobView]) -> None:
        self.jobs = sorted(jobs, key=job_order)
        works_s = [job.iterations_left * job.serial_iteration_s for job in self.jobs]
        rows, self._unlike = unlike_in_pace(self.jobs)
        self.all_alike = len(self._unlike) == 1 and works_s.count(works_s[0]) == len(works_s)
        self._works_s = np.array(works_s)[:, None]
        self._rows = rows if len(self._unlike) > 1 else None

    def times_s(self, gangs: Sequence[GangAt]) -> Seconds:
        """`job_time_s` of each job on each gang, jobs by gangs; infinite where a job cannot run."""
        paces = [[pace_on(job, gang) for gang in gangs] for job in self._unlike]
        slowdowns = np.array([[slowdown if usable else math.inf for slowdown, usable in row] for row in paces])
        usables = np.array([[usable or 1 for _, usable in row] for row in paces])
        if self._rows is None:
            return np.asarray(self._works_s * slowdowns[0] / usables[0])
        return np.asarray(self._works_s * slowdowns[self._rows] / usables[self._rows])


def unlike_in_pace(jobs: Sequence[JobView]) -> tuple[list[int], list[JobView]]:
    """One job of each shape, S and speeds, and for each job the index of its own among them."""
    # Jobs of one search usually share these objects, and identities compare faster than values.
    if len({(id(job.slowdown), id(job.shape), id(job.speeds)) for job in jobs}) == 1:
        return [0] * len(jobs), [jobs[0]]
    rows: list[int] = []
    unlike: list[JobView] = []
    index_of: dict[tuple[Slowdown, JobShape, Speeds], int] = {}
    known: dict[tuple[int, int, int], int] = {}
    for job in jobs:
        objects = id(job.slowdown), id(job.shape), id(job.speeds)
        index = known.get(objects)
        if index is None:
            index = known[objects] = index_of.setdefault((job.slowdown, job.shape, job.speeds), len(unlike))
            if index == len(unlike):
                unlike.append(job)
        rows.append(index)
    return rows, unlike


def merged(alone_s: Seconds) -> tuple[Seconds, Places]:
    """Merge neighbouring gangs on which every job takes equally long; returns the times and the first index of each."""
    kinds = alone_s.shape[1]
    if kinds == 1:
        return alone_s, _ONE
    unlike = np.logical_or.reduce(alone_s[:, 1:] != alone_s[:, :-1], axis=0)
    first = np.array([0, *[index for index, new in enumerate(unlike.tolist(), 1) if new]])
    return (alone_s, first) if len(first) == kinds else (alone_s[:, first], first)


_ONE: Places = np.zeros(1, dtype=np.intp)


def _like_jobs_time_s(jobs: int, times_s: Sequence[float], counts: Sequence[int]) -> float:
    """`phase_time_s` of `jobs` identical jobs that take `times_s` on the kinds of gangs, in `gang_order`.

    Each job goes where it ends earliest, which is optimal for identical jobs. If one gang of a kind is best for a job,
    the other gangs of that kind are best for the next ones, so kinds fill row by row. Ends are summed row by row: a
    product may differ from the sum in the last bit.
    """
    ends_s = list(times_s)
    latest_s = 0.0
    while jobs > 0:
        latest_s = min(ends_s)
        kind = ends_s.index(latest_s)
        jobs -= counts[kind]
        ends_s[kind] += times_s[kind]
    return latest_s


def split_evenly(gpus: int, jobs: int, shape: JobShape) -> tuple[int, ...]:
    """Sizes of the gangs into which an app divides `gpus` GPUs over `jobs` identical jobs, largest first.

    As many jobs as possible run at once, each on at least its smallest gang; tasks are distributed evenly. GPUs that no
    job can use are left out. Example: 7 GPUs over 3 jobs of 1 to 4 GPUs make gangs of 3, 2 and 2.
    """
    return tuple(size for size, count in even_sizes(gpus, jobs, shape) for _ in range(count))


def even_sizes(gpus: int, jobs: int, shape: JobShape) -> list[tuple[int, int]]:
    """`split_evenly` as (size, number of gangs), largest first."""
    tasks = gpus // shape.gpus_per_task
    running = min(jobs, tasks // shape.min_tasks)
    if running <= 0:
        return []
    tasks = min(tasks, running * shape.tasks)
    each, more = divmod(tasks, running)
    sizes = (((each + 1) * shape.gpus_per_task, more), (each * shape.gpus_per_task, running - more))
    return [(size, count) for size, count in sizes if count]


def even_counts(
    gpus: int,
    jobs: int,
    shape: JobShape,
    cluster: ClusterView,
    at_least: Level = Level.SLOT,
    speeds: Speeds = SAME_SPEED,
) -> Mapping[GangAt, int]:
    """An even split with every gang at its tightest level, but no tighter than `at_least` (except single GPUs).

    Identical gangs are counted.
    On a cluster of several device types the GPUs are those of the types on which a job of these `speeds` is fastest.
    Each type gives gangs to as many jobs as it can, and the next type to the others.
    """
    if cluster.types:
        return _counts_by_type(gpus, jobs, shape, cluster, at_least, speeds)
    return {nearest_gang(size, cluster, at_least): count for size, count in even_sizes(gpus, jobs, shape)}


def _counts_by_type(
    gpus: int, jobs: int, shape: JobShape, cluster: ClusterView, at_least: Level, speeds: Speeds
) -> Mapping[GangAt, int]:
    counts: dict[GangAt, int] = {}
    for each in cluster.types_for(speeds):
        taken = min(gpus, each.gpus)
        gpus -= taken
        for size, count in even_sizes(taken, jobs, shape):
            level = max(each.fitting_level[size - 1], at_least) if size > 1 else Level.SLOT
            counts[GangAt(size, level, device=each.device)] = count
            jobs -= count
    return counts


def nearest_gang(gpus: int, cluster: ClusterView, at_least: Level = Level.SLOT) -> GangAt:
    """A gang at its tightest level in the empty cluster, but no tighter than `at_least` (except a single GPU)."""
    return GangAt(gpus, max(cluster.nearest_level(gpus), at_least) if gpus > 1 else Level.SLOT)


def later_phases_time_s(app: AppView, gpus: int, cluster: ClusterView, at_least: Level) -> float:
    """Seconds that the later phases take on `gpus` GPUs if every job is the median job."""
    total_s = 0.0
    # Not `sum`: from Python 3.12 on it compensates rounding errors, and the last bit would depend on the version.
    for phase in app.later_phases:
        total_s += _later_phase_s(app, phase, gpus, cluster, at_least)
    return total_s


def finish_time_s(app: AppView, gangs: Sequence[GangAt], cluster: ClusterView) -> float:
    """T(G): seconds from now until the app ends on these gangs, held to the end (equation 2).

    Our choice: later phases divide the same number of GPUs evenly over their jobs, at the tightest level at which their
    gangs fit, but no tighter than the loosest of today's gangs: an app that is scattered now cannot count on better.
    """
    if len(app.jobs) == 1 and not app.later_phases:
        return min([job_time_s(app.jobs[0], gang) for gang in gangs], default=math.inf)
    return _finish_time_s(app, _counted(gangs), cluster)


def _counted(gangs: Iterable[GangAt]) -> dict[GangAt, int]:
    """The number of each gang. For the few gangs of most apps a loop is faster than a Counter."""
    counts: dict[GangAt, int] = {}
    for gang in gangs:
        counts[gang] = counts.get(gang, 0) + 1
    return counts


def _finish_time_s(app: AppView, gangs: Mapping[GangAt, int], cluster: ClusterView) -> float:
    """`finish_time_s` with identical gangs counted."""
    now_s = _phase_time_s(app.jobs, gangs)
    if math.isinf(now_s) or not app.later_phases:
        return now_s
    at_least = max((gang.level for gang in gangs if gang.gpus > 1), default=Level.SLOT)
    gpus = sum(gang.gpus * count for gang, count in gangs.items())
    return now_s + later_phases_time_s(app, gpus, cluster, at_least)


def time_on_count_s(app: AppView, gpus: float, cluster: ClusterView) -> float:
    """T on a number of GPUs placed at their tightest levels, in seconds.

    The GPUs are split evenly into gangs for one of the jobs' shapes: the one that ends the app first. The smallest gang
    is one on which every job can run. On fewer GPUs T grows in proportion: half of the smallest gang takes twice as
    long as all of it.
    """
    smallest = smallest_gang_gpus(app)
    whole_s = time_on_whole_s(app, max(int(gpus), smallest), cluster)
    return float(in_proportion_s(np.array([whole_s]), smallest, gpus)[0])


def smallest_gang_gpus(app: AppView) -> int:
    """The GPUs of the smallest gang on which every job can run."""
    return max([shape.demand_min_gpus for shape in _shapes_of(app)])


def in_proportion_s(whole_s: Seconds, smallest_gpus: int | Seconds, gpus: float) -> Seconds:
    """T of N apps on `gpus` GPUs, in seconds; infinite on none.

    Args:
        whole_s: T of each on the whole GPUs of these, but at least on `smallest_gpus` [N].
        smallest_gpus: `smallest_gang_gpus`; one number, or one for each app.
        gpus: GPUs of each app; it may be a fraction.
    """
    if gpus <= 0:
        return np.full(len(whole_s), math.inf)
    return np.where(smallest_gpus <= gpus, whole_s, whole_s * smallest_gpus / gpus)


def time_on_whole_s(app: AppView, gpus: int, cluster: ClusterView) -> float:
    """`time_on_count_s` of a whole number of GPUs, at least `smallest_gang_gpus`."""
    if not app.jobs:
        return later_phases_time_s(app, gpus, cluster, Level.SLOT)
    speeds = app.median_job.speeds
    splits = [even_counts(gpus, len(app.jobs), shape, cluster, speeds=speeds) for shape in _shapes_of(app)]
    return min([_finish_time_s(app, split, cluster) for split in splits])


def times_of_phases_s(app: AppView, gpus: int, cluster: ClusterView) -> tuple[float, ...]:
    """`time_on_whole_s` of an app with jobs, phase by phase: the current phase, then each later one."""
    speeds = app.median_job.speeds
    splits = [even_counts(gpus, len(app.jobs), shape, cluster, speeds=speeds) for shape in _shapes_of(app)]
    best = min(splits, key=lambda split: _finish_time_s(app, split, cluster))
    held = sum(gang.gpus * count for gang, count in best.items())
    at_least = max((gang.level for gang in best if gang.gpus > 1), default=Level.SLOT)
    later_s = [_later_phase_s(app, phase, held, cluster, at_least) for phase in app.later_phases]
    return (_phase_time_s(app.jobs, best), *later_s)


def _shapes_of(app: AppView) -> list[JobShape]:
    return list(dict.fromkeys([*[job.shape for job in app.jobs], app.median_job.shape]))


def later_job(app: AppView, phase: Phase) -> JobView:
    """A job of a later phase: the median job with the phase's iterations."""
    median = app.median_job
    return JobView(
        job_id="later",
        iterations_left=phase.iterations,
        serial_iteration_s=median.serial_iteration_s,
        slowdown=median.slowdown,
        shape=median.shape,
        speeds=median.speeds,
    )


def _later_phase_s(app: AppView, phase: Phase, gpus: int, cluster: ClusterView, at_least: Level) -> float:
    median = app.median_job
    gangs = even_counts(gpus, phase.jobs, median.shape, cluster, at_least, median.speeds)
    if not gangs:
        return math.inf
    job, kinds = later_job(app, phase), sorted(gangs, key=gang_order)
    return _like_jobs_time_s(phase.jobs, [job_time_s(job, kind) for kind in kinds], [gangs[kind] for kind in kinds])
