"""Runs that nobody made: records with numbers chosen by hand, as experiments get them."""

from simulator.clusters import cluster_named
from simulator.experiments.port import Cell, Done
from simulator.experiments.statistics import DEFINITIONS
from simulator.record import AppOutcome, Counts, RunRecord
from simulator.settings import Settings

TESTBED = cluster_named("testbed")


def app(name="a", *, rho=1.0, score=1.0, gpu_h=1.0, bound=0.5, jobs=1):
    """An app that took an hour. The other definitions of rho are 10, 20, .. larger."""
    return AppOutcome(
        name=name,
        model="vgg16",
        jobs=jobs,
        submitted_at_s=0.0,
        first_gpu_at_s=60.0,
        ended_at_s=3600.0,
        rho={definition: rho + 10.0 * place for place, definition in enumerate(DEFINITIONS)},
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
    return Done(cell=Cell(labels=labels, make_workload=dict, settings=Settings(cluster=TESTBED)), record=run)


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
