"""Markets from real agents: apps of a simulated run bid on the GPUs that are free at some moment of the run."""

from __future__ import annotations

import math
import random

from rm_plugin.arbiter.core import LeasePolicy
from rm_plugin.arbiter.round_values import RoundSnapshot
from themis.apps import CRUDE_SLOWDOWN, JobShape, Slowdown
from themis.bids import Market
from themis.choices import LeaseEnds
from themis.cluster import Cluster, Machine
from themis_lab.simulator.costs import Costs
from themis_lab.simulator.settings import Settings
from themis_lab.simulator.simulation import Simulation
from themis_lab.simulator.workload import AppTrace, JobTrace, Workload

SLOWDOWNS = (
    CRUDE_SLOWDOWN,
    Slowdown(1.0, 1.0, 1.02, 1.05),  # like resnet50: computes much, sends little
    Slowdown(1.0, 1.2, 2.0, 4.0),  # like vgg16: sensitive to placement
)
SMALL_CLUSTER = ((2, 2), (2, 2), (2,), (2,), (1,))
TESTBED_CLUSTER = ((2,),) * 8 + ((2, 2),) * 12
LARGE_CLUSTER = ((2, 2, 2, 2),) * 16 + ((1, 1, 1, 1),) * 6 + ((1,),) * 16
COSTS = Costs()
_RACKS = 3
_MAX_WAITS = 20


def agents(seed: int) -> Market:
    """Up to 5 bidders on 13 GPUs."""
    return agent_market(seed, SMALL_CLUSTER, apps=7, bidders=5)


def testbed(seed: int) -> Market:
    """Up to 5 bidders on the 64 GPUs of the paper's testbed."""
    return agent_market(seed, TESTBED_CLUSTER, apps=12, bidders=5)


def large(seed: int) -> Market:
    """Up to 17 bidders on 168 GPUs, the cluster that the paper simulates."""
    return agent_market(seed, LARGE_CLUSTER, apps=30, bidders=17)


def agent_market(seed: int, slots: tuple[tuple[int, ...], ...], *, apps: int, bidders: int) -> Market:
    """Return the market of a round at a random moment of a cluster's life. The apps with the highest rho bid.

    Before that round a policy without auctions runs the cluster, so that no solver influences the market. Leases end
    together or one by one. Bidders hold GPUs and may renew some of them. Free GPUs may be fragmented.

    Args:
        seed: Seed of all random choices.
        slots: GPUs of each machine's slots.
        apps: Number of apps that arrive before the round.
        bidders: Largest number of bidders.
    """
    rng = random.Random(seed)
    cluster = cluster_of(slots)
    ends = rng.choice((LeaseEnds.ALIGNED, LeaseEnds.STAGGERED, LeaseEnds.STAGGERED))
    leases = LeasePolicy(ends=ends, checkpoint_lead_s=COSTS.checkpoint_s)
    # Together the apps request two to four times the cluster's GPUs.
    scale = rng.uniform(2.0, 4.0) * cluster.gpus / apps
    traces, at_s = [], 0.0
    for number in range(apps):
        traces.append(random_app(rng, f"a{number:02}", scale, at_s))
        if rng.random() < 0.3:
            at_s += rng.uniform(0.0, leases.duration_s)
    settings = Settings(cluster=cluster, policy="tiresias", seed=seed, leases=leases, costs=COSTS)
    run = Simulation(Workload(name="audit", apps=tuple(traces)), settings)
    run.play_until(at_s)
    run.play_rounds(rng.randint(1, 4))
    return _round_with_bids(run, rng, bidders)


def cluster_of(slots: tuple[tuple[int, ...], ...]) -> Cluster:
    """A cluster of machines with these slots, distributed over three racks."""
    machines = tuple(
        Machine(machine_id=f"m{number:02}", rack_id=f"r{number % _RACKS}", slots=sizes)
        for number, sizes in enumerate(slots)
    )
    return Cluster(name="audit", machines=machines)


def random_app(rng: random.Random, name: str, demand_gpus: float, arrival_s: float) -> AppTrace:
    """An app whose jobs together use at most about `demand_gpus` GPUs, in iterations of one second on one GPU."""
    unit, least = rng.choice(((1, 1), (1, 1), (1, 2), (2, 1), (1, 4)))
    shape = JobShape(tasks=least * rng.choice((1, 1, 2, 3)), min_tasks=least, gpus_per_task=unit)
    slowdown = rng.choice(SLOWDOWNS)
    count = max(1, round(rng.uniform(0.3, 1.7) * demand_gpus / shape.demand_max_gpus))
    work_s = math.pow(10.0, rng.uniform(2.5, 4.5))
    jobs = tuple(
        JobTrace(
            job_id=f"{name}-j{number}",
            iterations_total=round(work_s * rng.uniform(0.5, 2.0)),
            serial_iteration_s=1.0,
            slowdown=slowdown,
            shape=shape,
        )
        for number in range(count)
    )
    return AppTrace(name=name, arrival_s=arrival_s, jobs=jobs)


def _round_with_bids(run: Simulation, rng: random.Random, bidders: int) -> Market:
    """Return a round that offers at least a random share of the cluster. If none does, return the last one.

    No round grants GPUs until then. So more GPUs are free, and they are more fragmented, than in a round on time.
    """
    least_gpus = rng.choice((0.1, 0.25, 0.5, 1.0)) * run.settings.cluster.gpus
    snapshot, _ = run.arbiter.begin_round(run.now_s)
    for _ in range(_MAX_WAITS):
        if snapshot.free.gpus >= least_gpus:
            break
        run.pass_time(run.now_s + rng.uniform(20.0, 100.0))
        snapshot, _ = run.arbiter.begin_round(run.now_s)
    bids = (run.bid(snapshot, app_id) for app_id in sorted(_worst_apps(run, snapshot)[:bidders]))
    machines = tuple(machine for machine in snapshot.machines if machine.free)
    return Market(machines=machines, bids=tuple(bid for bid in bids if bid.empty_value > 0))


def _worst_apps(run: Simulation, snapshot: RoundSnapshot) -> list[str]:
    reports = [run.report(snapshot, app.app_id) for app in snapshot.apps]
    with_demand = sorted(
        (report for report in reports if report.demands), key=lambda report: (-report.rho, report.app_id)
    )
    return [report.app_id for report in with_demand]
