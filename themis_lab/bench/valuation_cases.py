"""Random apps and bundles to value: small ones for exhaustive search, and apps of a hundred jobs."""

from __future__ import annotations

from random import Random

from msgspec.structs import replace

from am.agent.model.views import AppView, ClusterView, JobView
from am.app_view import make_cluster_view
from am.tuners.port import Phase
from rm_plugin.arbiter.seeds import child_seed
from themis.apps import CRUDE_SLOWDOWN, JobShape, Slowdown
from themis.bids import FreeMachine, Offer
from themis.choices import BundleRule
from themis.cluster import Allocation, Cluster, Machine
from themis.values import Value
from themis_lab.bench.sizes import cluster_of, size_of

JOBS = 100
"""Jobs of a large app."""

LARGE_GPUS = 168
"""GPUs of the cluster that large apps bid on; all are free."""

BUNDLES_GPUS = (168, 84, 42, 21)
"""Largest number of GPUs of the bundles that a large bid is tested on."""

_SMALL_GPUS, _SMALL_JOBS = 7, 5
_SLOWDOWNS = (Slowdown(1.0, 1.0, 1.0, 1.0), CRUDE_SLOWDOWN, Slowdown(1.0, 1.2, 2.0, 4.0))
_LARGE_SHAPES = (
    (JobShape(tasks=1),),
    (JobShape(tasks=2, min_tasks=2),),
    (JobShape(tasks=4, min_tasks=4),),
    (JobShape(tasks=8, min_tasks=8),),
    (JobShape(tasks=4, min_tasks=1),),
    (JobShape(tasks=1), JobShape(tasks=2, min_tasks=2), JobShape(tasks=4, min_tasks=4)),
)
_JOB_SIGMA = 0.15
_LEASE_S = 600.0


class Case(Value, frozen=True, kw_only=True):
    """An app without GPUs, and its offer."""

    app: AppView
    cluster_view: ClusterView
    machines: tuple[FreeMachine, ...]

    @property
    def offer(self) -> Offer:
        """An offer of all GPUs."""
        return Offer(
            round_id=1,
            now_s=0.0,
            deadline_s=1.0,
            lease_s=_LEASE_S,
            free=Allocation.of({machine.machine_id: machine.free for machine in self.machines}),
            slots={machine.machine_id: machine.free_slots for machine in self.machines},
        )


def small_case(seed: int) -> Case:
    """One to five jobs of one or two shapes on two to seven GPUs of up to three machines in two racks."""
    rng = Random(child_seed(seed, "valuation", "small"))
    gpus = rng.randint(2, _SMALL_GPUS)
    machines: list[Machine] = []
    while gpus:
        slots = tuple(rng.choice(((1,), (2,), (1, 1), (2, 2), (3,), (4,))))
        if sum(slots) > gpus or len(machines) == 2:
            slots = (gpus,)
        machines.append(Machine(machine_id=f"m{len(machines)}", rack_id=f"r{rng.randrange(2)}", slots=slots))
        gpus -= sum(slots)
    cluster = Cluster(name="small", machines=tuple(machines))
    shapes = [_small_shape(rng, cluster.gpus) for _ in range(rng.choice((1, 1, 2)))]
    slowdown = rng.choice(_SLOWDOWNS)
    works_s = [float(rng.randint(20, 100)) for _ in range(rng.randint(1, _SMALL_JOBS))]
    return _case(cluster, [_job(place, work_s, rng.choice(shapes), slowdown) for place, work_s in enumerate(works_s)])


def _small_shape(rng: Random, max_gpus: int) -> JobShape:
    tasks = rng.randint(1, min(4, max_gpus))
    return JobShape(tasks=tasks, min_tasks=rng.randint(1, tasks))


def large_case(seed: int) -> Case:
    """A hundred jobs on 168 free GPUs, about half of them partly done; the jobs' shapes alternate."""
    rng = Random(child_seed(seed, "valuation", "large"))
    shapes = _LARGE_SHAPES[seed % len(_LARGE_SHAPES)]
    slowdown = rng.choice(_SLOWDOWNS)
    works_s = [min(1.0, rng.uniform(0.0, 2.0)) * 3600.0 * rng.lognormvariate(0.0, _JOB_SIGMA) for _ in range(JOBS)]
    jobs = [_job(place, max(work_s, 1.0), rng.choice(shapes), slowdown) for place, work_s in enumerate(works_s)]
    return _case(cluster_of(size_of(LARGE_GPUS)), jobs)


def bundle_of(case: Case, gpus: int, seed: int) -> tuple[FreeMachine, ...]:
    """Whole machines of a case in random order, as long as they have at most `gpus` GPUs together."""
    order = list(case.machines)
    Random(child_seed(seed, "valuation", "bundle", str(gpus))).shuffle(order)
    taken: list[FreeMachine] = []
    for machine in order:
        if sum(each.free for each in taken) + machine.free <= gpus:
            taken.append(machine)
    return tuple(sorted(taken, key=lambda machine: machine.machine_id))


def in_a_search(case: Case) -> Case:
    """The case as in live bids: with later phases of successive halving, some elapsed time, and `continuation`."""
    phases = tuple(Phase(jobs=JOBS >> cut, iterations=3600 << cut) for cut in range(1, 6))
    total_gpu_s = case.app.work_total_gpu_s + sum(phase.jobs * phase.iterations for phase in phases)
    app = replace(case.app, later_phases=phases, elapsed_s=1800.0, work_total_gpu_s=total_gpu_s, restart_s=30.0)
    return replace(case, app=app, cluster_view=replace(case.cluster_view, rule=BundleRule.CONTINUATION))


def _job(place: int, work_s: float, shape: JobShape, slowdown: Slowdown) -> JobView:
    return JobView(job_id=f"j{place:03d}", iterations_left=1, serial_iteration_s=work_s, slowdown=slowdown, shape=shape)


def _case(cluster: Cluster, jobs: list[JobView]) -> Case:
    """With no elapsed time and a bundle held to the end, V is t_ideal / T: it shows the whole loss of packing."""
    app = AppView(
        app_id="app",
        elapsed_s=0.0,
        contention=4.0,
        jobs=tuple(jobs),
        work_total_gpu_s=sum(job.serial_work_s for job in jobs),
        demand_max_gpus=sum(job.shape.demand_max_gpus for job in jobs),
    )
    cluster_view = make_cluster_view(cluster, active_apps=4, lease_s=_LEASE_S, rule=BundleRule.LEXICOGRAPHIC)
    machines = tuple(
        FreeMachine(machine_id=machine.machine_id, rack_id=machine.rack_id, free_slots=machine.slots)
        for machine in cluster.machines
    )
    return Case(app=app, cluster_view=cluster_view, machines=machines)
