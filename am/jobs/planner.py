"""Which job runs on which of the app's GPUs: pure, from what is leased and what runs to what should change.

Running jobs stay where they are while all their GPUs stay. GPUs without a job go to waiting jobs (`division` says
which) as long as one of them could run there, in gangs that lie as near as possible, or to one that runs but would end
after all others where it is (`late`); then to running jobs that would gain more than a restart costs; what nobody can
use goes back to the ResourceManager.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from types import MappingProxyType

from msgspec import field

from am.agent.model.demands import pays_above
from am.agent.model.views import GangAt, JobView
from am.jobs.division import MOST_TRIED, Beside, Jobs, best_starts
from am.jobs.late import late_jobs
from am.jobs.later import Later
from am.jobs.pool import Pool, by_place, speed_of, tasks_of
from am.jobs.promised import promised_choice
from themis.cluster import Cluster, GpuId, Level
from themis.values import Value

OnGpus = tuple[JobView, tuple[GpuId, ...]]

NOWHERE: Mapping[str, tuple[GpuId, ...]] = MappingProxyType({})
"""No job moves."""


class PlannedJob(Value, frozen=True, kw_only=True):
    """A job of the current phase. `gpus` it holds now; `stopping` when its tasks are already on their way out."""

    view: JobView
    gpus: tuple[GpuId, ...] = ()
    stopping: bool = False


class Holdings(Value, frozen=True, kw_only=True):
    """The app's GPUs: `granted` to use now, `reserved` ones that others are still giving back, `expiring` ones."""

    granted: frozenset[GpuId] = frozenset()
    reserved: frozenset[GpuId] = frozenset()
    expiring: frozenset[GpuId] = frozenset()


class Plan(Value, frozen=True, kw_only=True):
    """What should change. `stop` gives the reason by job; `start` and `wait` the GPUs by job.

    Jobs in `wait` start on their GPUs as soon as the reserved ones among them are granted. `move` tells where jobs that
    stop though others wait start again: the next plan is to be told of it. `prepare` tells where those that stop in
    order to grow presumably will; reserved GPUs may be among them.
    """

    stop: Mapping[str, str] = field(default_factory=dict)
    start: Mapping[str, tuple[GpuId, ...]] = field(default_factory=dict)
    wait: Mapping[str, tuple[GpuId, ...]] = field(default_factory=dict)
    move: Mapping[str, tuple[GpuId, ...]] = field(default_factory=dict)
    prepare: Mapping[str, tuple[GpuId, ...]] = field(default_factory=dict)
    release: tuple[GpuId, ...] = ()


def make_plan(
    jobs: Sequence[PlannedJob],
    others: Mapping[str, tuple[GpuId, ...]],
    holdings: Holdings,
    cluster: Cluster,
    restart_s: float,
    moving: Mapping[str, tuple[GpuId, ...]] = NOWHERE,
) -> Plan:
    """Plan the app's GPUs.

    Args:
        jobs: Jobs of the current phase that have not reached their target.
        others: GPUs by job of tasks that still run though their job should not: it lost, or the app is ending.
        holdings: What is leased.
        cluster: For levels and racks.
        restart_s: What moving a running job costs, in seconds.
        moving: What `move` of the plan before said.
    """
    usable = holdings.granted | holdings.reserved
    taken = {job.view.job_id: "its GPUs are taken back" for job in jobs if not usable.issuperset(job.gpus)}
    stop = taken | dict.fromkeys(others, "the tuner stopped it")
    already = {job.view.job_id for job in jobs if job.stopping}
    busy = {gpu for job in jobs for gpu in job.gpus} | {gpu for gpus in others.values() for gpu in gpus}
    goals = _kept(jobs, moving, holdings.granted, busy)
    if not goals and busy.issuperset(usable):  # Nothing is idle, as in most apps.
        return Plan(stop=_without(stop, already))
    # A job that is being stopped will want a gang in a moment: nothing is grown or given back before that is settled.
    # One that lost will not: what is idle beside it is for growth at once, as the app's report asks for it.
    settled = not already and not taken
    idle = Pool(usable - busy - {gpu for gpus in goals.values() for gpu in gpus}, cluster)
    back = {job.view.job_id: goals[job.view.job_id] for job in jobs if job.view.job_id in goals and not job.gpus}
    beside = [PlannedJob(view=job.view, gpus=back.get(job.view.job_id, job.gpus)) for job in jobs] if back else jobs
    to_move_to = holdings.granted if settled and not goals else frozenset()
    later = _wait_for_all(beside, idle, holdings.granted, to_move_to, restart_s)
    gangs = {} if later else _serve_waiting(beside, idle, to_move_to, restart_s)
    move = {job.view.job_id: gangs.pop(job.view.job_id) for job in jobs if job.gpus and job.view.job_id in gangs}
    start = back | {job: gpus for job, gpus in gangs.items() if holdings.granted.issuperset(gpus)}
    wait = later or {job: gpus for job, gpus in gangs.items() if job not in start}
    waiting = [job.view for job in jobs if not job.gpus and job.view.job_id not in start]
    grown = _grow(jobs, waiting, idle, restart_s) if settled and not wait and not move else {}
    stop |= dict.fromkeys(move, "it moves") | dict.fromkeys(grown, "it grows")
    going = any(job.stopping or job.view.job_id in stop for job in jobs)
    return Plan(
        stop=_without(stop, already),
        start=start,
        wait=wait,
        move=move | {job: gpus for job, gpus in goals.items() if job not in back},
        prepare=grown,
        release=() if going or wait or not idle else tuple(sorted(idle.gpus & holdings.granted, key=by_place)),
    )


def _without(stop: Mapping[str, str], already: Collection[str]) -> dict[str, str]:
    """Those of the jobs to stop that are not being stopped already."""
    return {job_id: why for job_id, why in stop.items() if job_id not in already}


def _wait_for_all(
    jobs: Sequence[PlannedJob], idle: Pool, granted: frozenset[GpuId], to_move_to: frozenset[GpuId], restart_s: float
) -> Mapping[str, tuple[GpuId, ...]]:
    """Gangs for waiting jobs where others have yet to give back all that is idle; else, or without such jobs, nothing.

    So is everything that an app wins as leases end. Then no job starts, moves or grows, and when GPUs are granted this
    is planned anew: what the jobs wait for is worked out only if somebody asks the app before that.
    """
    if not idle or not granted.isdisjoint(idle.gpus) or not _runnable([job.view for job in jobs if not job.gpus], idle):
        return {}
    return Later(lambda: _serve_waiting(jobs, idle, to_move_to, restart_s))


def _kept(
    jobs: Sequence[PlannedJob],
    moving: Mapping[str, tuple[GpuId, ...]],
    granted: frozenset[GpuId],
    busy: set[GpuId],
) -> dict[str, tuple[GpuId, ...]]:
    """The GPUs that are kept for jobs that move, by job: none once one of them is gone, or in use."""
    ids = {job.view.job_id for job in jobs} if moving else set()
    return {
        job_id: gpus
        for job_id, gpus in moving.items()
        if job_id in ids and granted.issuperset(gpus) and busy.isdisjoint(gpus)
    }


def _serve_waiting(
    jobs: Sequence[PlannedJob], idle: Pool, to_move_to: frozenset[GpuId], restart_s: float
) -> dict[str, tuple[GpuId, ...]]:
    """Gangs for those of the waiting jobs that `best_starts` tells, and for others on what these leave.

    No waiting job that could run on them leaves GPUs idle: for one restart it can move later, and the app asks for such
    GPUs again as soon as it has given them back. Those `to_move_to` may go to late running jobs as well.
    """
    gangs: dict[str, tuple[GpuId, ...]] = {}
    if not idle:
        return gangs
    waiting = [job.view for job in _longest_first(jobs) if not job.gpus]
    by_id = sorted(jobs, key=lambda job: job.view.job_id) if waiting else []
    running = [(job.view, job.gpus) for job in by_id if job.gpus]
    while able := _runnable(waiting, idle):
        served = _serve(able, waiting, running, idle, frozenset() if gangs else to_move_to, restart_s)
        gangs |= {view.job_id: gpus for view, gpus in served}
        waiting = [view for view in waiting if view.job_id not in gangs]
        running = [*(on_gpus for on_gpus in running if on_gpus[0].job_id not in gangs), *served]
    return gangs


def _runnable(jobs: Iterable[JobView], idle: Pool) -> list[JobView]:
    """Those of the jobs that could run on some of the GPUs."""
    if not idle:
        return []
    waiting = list(jobs)
    fitting = {shape for shape in {job.shape for job in waiting} if idle.holds(shape)}
    return [job for job in waiting if job.shape in fitting]


def _serve(
    able: Jobs, waiting: Jobs, running: Sequence[OnGpus], idle: Pool, to_move_to: frozenset[GpuId], restart_s: float
) -> list[OnGpus]:
    """Some of those waiting jobs that could run on idle GPUs, with the gangs that they take: at least one."""
    units = {view.shape.gpus_per_task for view in able}
    whole = len(idle) if 1 in units else max(len(tasks_of(idle.gpus, unit)) * unit for unit in units)
    best = best_starts(
        able, whole, idle.lay, restart_s, lambda: _beside(able, waiting, running, idle, bool(to_move_to), restart_s)
    )
    held = {view.job_id: gpus for view, gpus in running}
    served = []
    for view, size in best:
        if now := held.get(view.job_id):
            goal = idle.plus(()).take(view, size)
            if not to_move_to.issuperset(goal) or not _gains(view, now, goal, idle, restart_s):
                continue
        if gpus := idle.take(view, size):
            served.append((view, gpus))
    # A job may be put on a gang that is too small for it, which then stays free.
    return served or [(able[0], idle.take(able[0], whole))]


def _gains(job: JobView, now: Sequence[GpuId], gpus: Sequence[GpuId], idle: Pool, restart_s: float) -> bool:
    """True when a running job makes good a restart by moving from its GPUs to these."""
    if not gpus:
        return False
    return speed_of(job, len(gpus), idle.level_of(gpus)) > pays_above(job, idle.gang_of(now), restart_s)


def _beside(
    able: Jobs, waiting: Jobs, running: Sequence[OnGpus], idle: Pool, may_move: bool, restart_s: float
) -> Beside:
    """What the ways to share the idle GPUs are weighed with.

    What a bid promised is looked up where it may be none of the plain ways: of many jobs, on GPUs most of which are
    idle, as after a win. Else it is mostly one gang that a job has left.
    """
    gangs = [(view, idle.gang_of(gpus)) for view, gpus in running]
    ids = {view.job_id for view in able}
    late = late_jobs(gangs, waiting, idle, restart_s) if may_move else []
    tardy = {view.job_id for view in late}
    many = min(len(able), len(idle)) > MOST_TRIED and len(idle) >= sum(gang.gpus for _, gang in gangs)
    return Beside(
        running=[on_gang for on_gang in gangs if on_gang[0].job_id not in tardy],
        behind=[view for view in waiting if view.job_id not in ids],
        late=late,
        within=idle.level_of(idle.gpus.union(*(gpus for _, gpus in running))),
        promised=promised_choice(able, gangs, idle.free, idle.lay) if many else None,
    )


def _longest_first(jobs: Iterable[PlannedJob]) -> list[PlannedJob]:
    return sorted(jobs, key=lambda job: (-job.view.serial_work_s, job.view.job_id))


def _grow(
    jobs: Sequence[PlannedJob], waiting: Sequence[JobView], idle: Pool, restart_s: float
) -> dict[str, tuple[GpuId, ...]]:
    """Running jobs to stop so that they start again where they are faster: most work left first, while GPUs are idle.

    That is on more GPUs, or on as many that lie nearer. What a job would move to is what it would get when it starts
    again: whole tasks, which idle GPUs may not make. Where its GPUs beside the idle ones make a gang for a job that
    waits all are shared anew, and it may get none: two jobs could take turns so for ever.
    """
    grown: dict[str, tuple[GpuId, ...]] = {}
    if not idle:
        return grown
    left = idle
    for job in _longest_first(job for job in jobs if job.gpus):
        if not left:
            break
        now = GangAt(len(job.gpus), idle.level_of(job.gpus))
        enough = pays_above(job.view, now, restart_s)
        if speed_of(job.view, len(left) + len(job.gpus), Level.SLOT) <= enough:
            # Not even all of it in one slot would pay.
            continue
        pool = left.plus(job.gpus)
        if _runnable(waiting, pool):
            continue
        gang = pool.take(job.view, len(pool))
        if _gains(job.view, job.gpus, gang, idle, restart_s):
            grown[job.view.job_id] = gang
            left = pool
    return grown
