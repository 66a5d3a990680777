"""Which job runs on which of the app's GPUs. Pure: leases and running jobs in, a plan of changes out.

A running job stays on its GPUs while the app keeps them, unless a move gains time. Running jobs may exchange GPUs
(`exchange`). Idle GPUs go, in this order,

1. to waiting jobs that can run there (`gpu_division` decides which), or to stragglers (`stragglers`);
2. to running jobs that gain more than the cost of a restart;
3. back to the ResourceManager.

GPUs whose lease is bound to a job are for that job alone (`bound_gangs`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from types import MappingProxyType

from msgspec import field
from msgspec.structs import replace

from am.agent.model.demands import pays_above
from am.agent.model.finish_time import longest_first
from am.agent.model.views import GangAt, JobView
from am.jobs.bid_division import division_of_bid
from am.jobs.bound_gangs import plan_bound
from am.jobs.exchange import exchange_gpus
from am.jobs.gpu_division import MAX_TRIED, DivisionContext, Jobs, best_starts
from am.jobs.lazy_mapping import LazyMapping
from am.jobs.pool import Pool, by_place, speed_of
from am.jobs.stragglers import find_stragglers
from themis.cluster import Cluster, GpuId, Level
from themis.leases import Lease
from themis.lifecycle import LeaseState
from themis.sums import sum_in_order
from themis.values import Value

OnGpus = tuple[JobView, tuple[GpuId, ...]]

NOWHERE: Mapping[str, tuple[GpuId, ...]] = MappingProxyType({})
"""No job moves."""


class PlannedJob(Value, frozen=True, kw_only=True):
    """A job of the current phase.

    Attributes:
        view: Its work and speeds.
        gpus: The GPUs that it holds.
        stopping: Whether its tasks are already stopping.
        loses_work: Whether a stop loses work: its newest stop left no newer checkpoint. Such a job neither grows nor
            exchanges GPUs.
    """

    view: JobView
    gpus: tuple[GpuId, ...] = ()
    stopping: bool = False
    loses_work: bool = False


class Holdings(Value, frozen=True, kw_only=True):
    """The app's GPUs: `granted` ones are usable now, `reserved` ones are still held by others, `expiring` ones end.

    `bound` gives the job of the granted GPUs that are bound to one.
    """

    granted: frozenset[GpuId] = frozenset()
    reserved: frozenset[GpuId] = frozenset()
    expiring: frozenset[GpuId] = frozenset()
    bound: Mapping[GpuId, str] = field(default_factory=dict)

    @classmethod
    def of(cls, leases: Mapping[GpuId, Lease], reserved: Iterable[GpuId]) -> Holdings:
        """The GPUs of an app's leases, and those that are reserved for it."""
        expiring = frozenset([gpu for gpu, lease in leases.items() if lease.state is LeaseState.EXPIRING])
        return cls(
            granted=frozenset(leases.keys() - expiring),
            reserved=frozenset(reserved) - leases.keys(),
            expiring=expiring,
            bound={gpu: lease.job_id for gpu, lease in leases.items() if lease.job_id and gpu not in expiring},
        )


class Plan(Value, frozen=True, kw_only=True):
    """What should change.

    Attributes:
        stop: The reason by job.
        start: The GPUs by job.
        wait: The GPUs by job of jobs that start as soon as the reserved ones among these are granted.
        move: Where stragglers and jobs that exchange their GPUs start again, once they have stopped and these GPUs are
            free. Pass it to the next `make_plan`.
        prepare: Where jobs that stop in order to grow will probably start again. It may include reserved GPUs. Such a
            job stops only once all of these GPUs are granted and ready.
        release: GPUs to give back.
    """

    stop: Mapping[str, str] = field(default_factory=dict)
    start: Mapping[str, tuple[GpuId, ...]] = field(default_factory=dict)
    wait: Mapping[str, tuple[GpuId, ...]] = field(default_factory=dict)
    move: Mapping[str, tuple[GpuId, ...]] = field(default_factory=dict)
    prepare: Mapping[str, tuple[GpuId, ...]] = field(default_factory=dict)
    release: tuple[GpuId, ...] = ()

    @property
    def expected(self) -> Mapping[str, tuple[GpuId, ...]]:
        """The GPUs by job on which jobs that do not run, or stop, will start: `wait` and `move`."""
        return {**self.wait, **self.move} if self.move else self.wait


def make_plan(
    jobs: Sequence[PlannedJob],
    others: Mapping[str, tuple[GpuId, ...]],
    holdings: Holdings,
    cluster: Cluster,
    restart_s: float,
    moving: Mapping[str, tuple[GpuId, ...]] = NOWHERE,
) -> Plan:
    """Plan the app's GPUs.

    Example: two jobs wait, with 60 and 10 GPU seconds left, each on up to 4 GPUs. The app got two GPUs of m0 and one of
    m2. The plan starts the longer job on both GPUs of m0, and the shorter one on m2. When the shorter job ends, no job
    waits. If its GPU saves the longer job more than two restarts, `stop` says that this job grows, and `prepare` names
    its three GPUs. Otherwise `release` returns the GPU.

    Args:
        jobs: Jobs of the current phase that have not reached their target.
        others: GPUs by job of tasks that still run although their job should not: it lost, or the app is ending.
        holdings: The leased GPUs.
        cluster: For levels, racks and device types.
        restart_s: The cost of moving a running job, in seconds.
        moving: `move` of the previous plan.
    """
    if holdings.bound:
        return _plan_with_bound(jobs, others, holdings, cluster, restart_s, moving)
    if cluster.has_types:
        return _plan_by_type(jobs, others, holdings, cluster, restart_s, moving)
    return _plan_on_one_type(jobs, others, holdings, cluster, restart_s, moving)


def _plan_with_bound(
    jobs: Sequence[PlannedJob],
    others: Mapping[str, tuple[GpuId, ...]],
    holdings: Holdings,
    cluster: Cluster,
    restart_s: float,
    moving: Mapping[str, tuple[GpuId, ...]],
) -> Plan:
    """Plan the bound GPUs, and by the usual rules the jobs that have no bound GPU on the other GPUs."""
    bound = holdings.bound
    with_bound = set(bound.values())
    own = plan_bound(
        {job.view.job_id: job.gpus for job in jobs if job.gpus},
        [job.view.job_id for job in jobs if not job.gpus],
        [job.view.job_id for job in jobs if job.stopping or not holdings.granted.issuperset(job.gpus)],
        others,
        bound,
    )
    unbound = [
        job for job in jobs if (bound.keys().isdisjoint(job.gpus) if job.gpus else job.view.job_id not in with_bound)
    ]
    # A job may hold bound GPUs and others. While it does, no other job gets these.
    in_use = {gpu for job in jobs for gpu in job.gpus} - {gpu for job in unbound for gpu in job.gpus}
    free = replace(holdings, granted=holdings.granted - bound.keys() - in_use, bound={})
    rest = make_plan(
        unbound,
        others,
        free,
        cluster,
        restart_s,
        moving,
    )
    stopping = {job.view.job_id for job in jobs if job.stopping}
    return replace(
        rest,
        stop={**rest.stop, **_without(own.stop, stopping)},
        start={**rest.start, **own.start},
        release=(*rest.release, *own.release),
    )


def _plan_by_type(
    jobs: Sequence[PlannedJob],
    others: Mapping[str, tuple[GpuId, ...]],
    holdings: Holdings,
    cluster: Cluster,
    restart_s: float,
    moving: Mapping[str, tuple[GpuId, ...]],
) -> Plan:
    """Plan the GPUs of each device type by themselves, since a gang has one type.

    The types on which the waiting jobs are fastest in sum come first (ties: the smaller name), and the next type
    serves the jobs that are left. A running job stays on its type. While a job stops, no GPU of any type is given back:
    it may be for that job.
    """
    usable = holdings.granted | holdings.reserved
    unsettled = any(job.stopping or not usable.issuperset(job.gpus) for job in jobs)
    waiting = [job for job in jobs if not job.gpus]

    def type_of(gpu: GpuId) -> str:
        return cluster.machine(gpu.machine_id).device

    def total_speed(device: str) -> float:
        return sum_in_order(job.view.speeds.on(device) for job in waiting)

    parts: list[Plan] = []
    served: set[str] = set()
    for device in sorted(cluster.gpus_by_device, key=lambda name: (-total_speed(name), name)):
        mine = [
            job if not job.view.speeds.by_type else replace(job, view=job.view.on_type(device))
            for job in jobs
            if job.view.speeds.on(device) > 0.0
            and (type_of(job.gpus[0]) == device if job.gpus else job.view.job_id not in served)
        ]
        part = _plan_on_one_type(
            mine,
            {job_id: gpus for job_id, gpus in others.items() if gpus and type_of(gpus[0]) == device},
            Holdings(
                granted=frozenset(gpu for gpu in holdings.granted if type_of(gpu) == device),
                reserved=frozenset(gpu for gpu in holdings.reserved if type_of(gpu) == device),
                expiring=frozenset(gpu for gpu in holdings.expiring if type_of(gpu) == device),
            ),
            cluster,
            restart_s,
            {job_id: gpus for job_id, gpus in moving.items() if type_of(gpus[0]) == device},
            unsettled=unsettled,
        )
        served.update(part.start, part.wait, part.move)
        parts.append(part)
    return Plan(
        stop={job_id: why for part in parts for job_id, why in part.stop.items()},
        start={job_id: gpus for part in parts for job_id, gpus in part.start.items()},
        wait={job_id: gpus for part in parts for job_id, gpus in part.wait.items()},
        move={job_id: gpus for part in parts for job_id, gpus in part.move.items()},
        prepare={job_id: gpus for part in parts for job_id, gpus in part.prepare.items()},
        release=() if any(part.stop for part in parts) else tuple(gpu for part in parts for gpu in part.release),
    )


def _plan_on_one_type(
    jobs: Sequence[PlannedJob],
    others: Mapping[str, tuple[GpuId, ...]],
    holdings: Holdings,
    cluster: Cluster,
    restart_s: float,
    moving: Mapping[str, tuple[GpuId, ...]],
    *,
    unsettled: bool = False,
) -> Plan:
    """`make_plan` for GPUs of one device type. `unsettled`: jobs on other types stop, and may need these GPUs."""
    usable = holdings.granted | holdings.reserved
    taken = {job.view.job_id: "its GPUs are taken back" for job in jobs if not usable.issuperset(job.gpus)}
    stop = taken | dict.fromkeys(others, "the tuner stopped it")
    already = {job.view.job_id for job in jobs if job.stopping}
    busy = {gpu for job in jobs for gpu in job.gpus} | {gpu for gpus in others.values() for gpu in gpus}
    goals = _kept(jobs, moving, holdings.granted, busy)
    # A stopping job will soon need a gang: until then no job grows and no GPU is given back. A job that lost needs
    # none: idle GPUs extend gangs at once, as the app's report asks for them.
    settled = not already and not taken and not unsettled
    # A job that lost frees its GPUs soon, perhaps all that a gang needs.
    may_exchange = settled and not others and not goals
    if not goals and busy.issuperset(usable):  # Nothing is idle, as in most apps.
        exchanged = _exchanged(jobs, cluster, restart_s) if may_exchange else {}
        return Plan(stop=_without(stop | dict.fromkeys(exchanged, "it moves"), already), move=exchanged)
    idle = Pool(usable - busy - {gpu for gpus in goals.values() for gpu in gpus}, cluster)
    arrived = {job.view.job_id: goals[job.view.job_id] for job in jobs if job.view.job_id in goals and not job.gpus}
    back = {job_id: gpus for job_id, gpus in arrived.items() if busy.isdisjoint(gpus)}
    present_jobs = (
        [PlannedJob(view=job.view, gpus=arrived.get(job.view.job_id, job.gpus)) for job in jobs] if arrived else jobs
    )
    to_move_to = holdings.granted if settled and not goals else frozenset()
    later = _wait_for_all(present_jobs, idle, holdings.granted, to_move_to, restart_s)
    gangs = {} if later else _serve_waiting(present_jobs, idle, to_move_to, restart_s)
    move = {job.view.job_id: gangs.pop(job.view.job_id) for job in jobs if job.gpus and job.view.job_id in gangs}
    start = back | {job: gpus for job, gpus in gangs.items() if holdings.granted.issuperset(gpus)}
    wait = later or {job: gpus for job, gpus in gangs.items() if job not in start}
    waiting = [job.view for job in jobs if not job.gpus and job.view.job_id not in start]
    grown = _grow(jobs, waiting, idle, restart_s) if settled and not wait and not move else {}
    if may_exchange and not wait and not move and not grown:
        move = _exchanged(jobs, cluster, restart_s)
    stop |= dict.fromkeys(move, "it moves") | dict.fromkeys(grown, "it grows")
    going = unsettled or any(job.stopping or job.view.job_id in stop for job in jobs)
    return Plan(
        stop=_without(stop, already),
        start=start,
        wait=wait,
        move=move | {job: gpus for job, gpus in goals.items() if job not in back},
        prepare=grown,
        release=() if going or wait or not idle else tuple(sorted(idle.gpus & holdings.granted, key=by_place)),
    )


def _exchanged(jobs: Sequence[PlannedJob], cluster: Cluster, restart_s: float) -> dict[str, tuple[GpuId, ...]]:
    """The new gangs of the running jobs that exchange their GPUs, by job."""
    return exchange_gpus([(job.view, job.gpus) for job in jobs if not job.loses_work], cluster, restart_s)


def _without(stop: Mapping[str, str], already: Collection[str]) -> dict[str, str]:
    """`stop` without the jobs that are already stopping."""
    return {job_id: why for job_id, why in stop.items() if job_id not in already}


def _wait_for_all(
    jobs: Sequence[PlannedJob], idle: Pool, granted: frozenset[GpuId], to_move_to: frozenset[GpuId], restart_s: float
) -> Mapping[str, tuple[GpuId, ...]]:
    """Plan starts on GPUs that the app has won but cannot use yet.

    This is the usual case when leases end: others hold all GPUs that the app won. Then no job starts, moves or grows,
    and when the GPUs are granted the app plans again. So the mapping is computed only if it is read before that.

    Returns:
        A lazy mapping from job id to GPUs if all idle GPUs are reserved and a waiting job fits, else {}.
    """
    if not idle or not granted.isdisjoint(idle.gpus) or not _runnable([job.view for job in jobs if not job.gpus], idle):
        return {}
    return LazyMapping(lambda: _serve_waiting(jobs, idle, to_move_to, restart_s))


def _kept(
    jobs: Sequence[PlannedJob],
    moving: Mapping[str, tuple[GpuId, ...]],
    granted: frozenset[GpuId],
    busy: set[GpuId],
) -> dict[str, tuple[GpuId, ...]]:
    """The GPUs reserved for moving jobs, by job. Without those that lost a GPU or would wait for a job that stays."""
    if not moving:
        return {}
    ids = {job.view.job_id for job in jobs}
    staying = busy - {gpu for job in jobs if job.stopping for gpu in job.gpus}
    return {
        job_id: gpus
        for job_id, gpus in moving.items()
        if job_id in ids and granted.issuperset(gpus) and staying.isdisjoint(gpus)
    }


def _serve_waiting(
    jobs: Sequence[PlannedJob], idle: Pool, to_move_to: frozenset[GpuId], restart_s: float
) -> dict[str, tuple[GpuId, ...]]:
    """Gangs for the waiting jobs that `best_starts` chooses, then for others on the rest.

    No GPU stays idle that a waiting job could use: the job can move later for one restart, and the app would ask for a
    returned GPU again at once. Stragglers may get GPUs of `to_move_to` only.
    """
    gangs: dict[str, tuple[GpuId, ...]] = {}
    if not idle:
        return gangs
    waiting = sorted([job.view for job in jobs if not job.gpus], key=longest_first)
    by_id = sorted(jobs, key=lambda job: job.view.job_id) if waiting else []
    running = [(job.view, job.gpus) for job in by_id if job.gpus]
    while able := _runnable(waiting, idle):
        served = _serve(able, waiting, running, idle, frozenset() if gangs else to_move_to, restart_s)
        gangs |= {view.job_id: gpus for view, gpus in served}
        waiting = [view for view in waiting if view.job_id not in gangs]
        running = [*(on_gpus for on_gpus in running if on_gpus[0].job_id not in gangs), *served]
    return gangs


def _runnable(jobs: Iterable[JobView], idle: Pool) -> list[JobView]:
    """The jobs that could run on some of the GPUs."""
    if not idle:
        return []
    waiting = list(jobs)
    fitting = {shape for shape in {job.shape for job in waiting} if idle.holds(shape)}
    return [job for job in waiting if job.shape in fitting]


def _serve(
    able: Jobs, waiting: Jobs, running: Sequence[OnGpus], idle: Pool, to_move_to: frozenset[GpuId], restart_s: float
) -> list[OnGpus]:
    """Start at least one of the jobs `able` to run on idle GPUs. Returns jobs with their gangs."""
    whole = max(idle.usable(unit) for unit in {view.shape.gpus_per_task for view in able})
    best = best_starts(
        able,
        whole,
        idle.place_in_turn,
        restart_s,
        lambda: _context(able, waiting, running, idle, bool(to_move_to), restart_s),
    )
    held = {view.job_id: gpus for view, gpus in running}
    served = []
    for view, size in best:
        if now := held.get(view.job_id):
            goal = idle.copy().take(view, size)
            if not to_move_to.issuperset(goal) or not _gains(view, now, goal, idle, restart_s):
                continue
        if gpus := idle.take(view, size):
            served.append((view, gpus))
    # `best_starts` may choose a gang that is too small for its job, which then stays free.
    return served or [(able[0], idle.take(able[0], whole))]


def _gains(job: JobView, now: Sequence[GpuId], gpus: Sequence[GpuId], idle: Pool, restart_s: float) -> bool:
    """Whether a running job recovers the cost of a restart by moving from `now` to `gpus`."""
    if not gpus:
        return False
    return speed_of(job, len(gpus), idle.level_of(gpus)) > pays_above(job, idle.gang_of(now), restart_s)


def _context(
    able: Jobs, waiting: Jobs, running: Sequence[OnGpus], idle: Pool, may_move: bool, restart_s: float
) -> DivisionContext:
    """The context in which divisions of the idle GPUs are compared.

    The division of the bid is computed only for many jobs on mostly idle GPUs, as after a win: then the planner's own
    divisions may lack it. Otherwise the idle GPUs are usually one gang that a job has left.
    """
    gangs = [(view, idle.gang_of(gpus)) for view, gpus in running]
    ids = {view.job_id for view in able}
    stragglers = find_stragglers(gangs, waiting, idle, restart_s) if may_move else []
    straggling = {view.job_id for view in stragglers}
    many = min(len(able), len(idle)) > MAX_TRIED and len(idle) >= sum(gang.gpus for _, gang in gangs)
    return DivisionContext(
        running=[on_gang for on_gang in gangs if on_gang[0].job_id not in straggling],
        behind=[view for view in waiting if view.job_id not in ids],
        stragglers=stragglers,
        within=idle.level_of(idle.gpus.union(*(gpus for _, gpus in running))),
        of_bid=division_of_bid(able, gangs, idle.machines(), idle.place_in_turn) if many else None,
    )


def _grow(
    jobs: Sequence[PlannedJob], waiting: Sequence[JobView], idle: Pool, restart_s: float
) -> dict[str, tuple[GpuId, ...]]:
    """Choose running jobs that restart on a faster gang, most work left first. Returns the new GPUs by job.

    Faster means more GPUs, or as many at a tighter level. The new gang is computed as for a start, in whole tasks. A
    job does not grow if its GPUs and the idle ones together fit a waiting job: they would be divided again, the job
    might get none, and two jobs could replace each other forever.
    """
    grown: dict[str, tuple[GpuId, ...]] = {}
    if not idle:
        return grown
    left = idle
    able = [job for job in jobs if job.gpus and not job.loses_work]
    for job in sorted(able, key=lambda job: longest_first(job.view)):
        if not left:
            break
        now = GangAt(len(job.gpus), idle.level_of(job.gpus))
        enough = pays_above(job.view, now, restart_s)
        if speed_of(job.view, len(left) + len(job.gpus), Level.SLOT) <= enough:
            # Not even all GPUs in one slot would be fast enough.
            continue
        pool = left.plus(job.gpus)
        if _runnable(waiting, pool):
            continue
        gang = pool.take(job.view, len(pool))
        if _gains(job.view, job.gpus, gang, idle, restart_s):
            grown[job.view.job_id] = gang
            left = pool
    return grown
