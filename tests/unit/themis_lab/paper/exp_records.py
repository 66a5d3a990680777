"""Run records with made-up numbers, as input of experiments."""

from functools import partial

from themis.apps import JobShape, Slowdown
from themis.rho import FLUID_DEFINITIONS
from themis_lab.paper.port import Cell, Done
from themis_lab.paper.statistics import DEFINITIONS
from themis_lab.simulator.clusters import cluster_named
from themis_lab.simulator.record import AppOutcome, Counts, RunRecord
from themis_lab.simulator.settings import Settings
from themis_lab.simulator.workload import AppTrace, JobTrace, Workload

TESTBED = cluster_named("testbed")
FAR = Slowdown(1.0, 1.0, 2.0, 4.0)


def app(name="a", *, rho=1.0, score=1.0, gpu_h=1.0, bound=0.5, jobs=1):
    """An app that took an hour. The other definitions of rho are 10, 20, .. larger."""
    return AppOutcome(
        name=name,
        model="vgg16",
        jobs=jobs,
        submitted_at_s=0.0,
        first_gpu_at_s=60.0,
        ended_at_s=3600.0,
        rho={
            **dict.fromkeys(FLUID_DEFINITIONS, rho),
            **{definition: rho + 10.0 * number for number, definition in enumerate(DEFINITIONS)},
        },
        bound=bound,
        gpu_time_s=gpu_h * 3600.0,
        running_gpu_s=gpu_h * 3000.0,
        ideal_gpu_s=1800.0,
        placement_score=score,
        restarts=2,
        checkpoints=3,
        lost_gpu_s=0.0,
        contention=1.0,
    )


def record(*apps, bid_s=(), auction_s=()):
    return RunRecord(
        policy="",
        cluster="testbed",
        cluster_gpus=64,
        workload="w",
        seed=1,
        apps=apps,
        counts=Counts(rounds=3, auctions=2, bids=4, bid_s=list(bid_s), auction_s=list(auction_s)),
        makespan_s=3600.0,
        leased_share=0.5,
        running_share=0.4,
    )


def done(run, **labels):
    """A run as an experiment gets it; S of every job is 4 across racks."""
    cell = Cell(labels=labels, make_workload=partial(workload_of, run), settings=Settings(cluster=TESTBED))
    return Done(cell=cell, record=run)


def workload_of(run):
    """A workload with the apps of a record, of one job each."""
    alone = JobTrace(job_id="0", iterations_total=1, serial_iteration_s=1.0, slowdown=FAR, shape=JobShape(tasks=1))
    return Workload(name="w", apps=tuple(AppTrace(name=app.name, arrival_s=0.0, jobs=(alone,)) for app in run.apps))


def both_ends(policies, seeds=(1, 2), **labels):
    """A run for each policy, way of ending leases and seed; `policies` has the record of each."""
    return [
        done(run, **labels, policy=policy, ends=ends, seed=seed)
        for seed in seeds
        for policy, run in policies.items()
        for ends in ("aligned", "staggered")
    ]


def by_what(findings):
    return {line.what: line for line in findings.comparisons}
