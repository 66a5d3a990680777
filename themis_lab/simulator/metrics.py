"""The numbers of a run (themis.md, section 8) as one JSON document; what differs from run to run is kept apart.

Definitions of rho are never mixed: whatever is said of rho is said of one definition, by its name. Medians are the
middle value or the mean of the two middle ones, 95th percentiles the nearest rank, as in the testbed's report.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from themis.sums import sum_in_order
from themis_lab.simulator.record import AppOutcome, RunRecord

Document = dict[str, Any]
Summary = dict[str, float | int | None]

DEFINITION = "themis"
"""The definition of rho that scalars of the document are of."""

FAIR = 1.0
NEARLY_FAIR = 1.05
MEASURED = ("wall_s", "peak_memory_mb", "overheads")
"""Keys of the document that are of this machine and differ from run to run; nothing else does."""

_TENTHS = 10


def document_of(record: RunRecord) -> Document:
    """The whole document: the metrics, and what the run took on this machine."""
    metrics = metrics_of(record)
    invariants = metrics.pop("invariants")
    return {**metrics, **measured_of(record), "invariants": invariants}


def metrics_of(record: RunRecord) -> Document:
    """All that the same input gives again, to the byte."""
    apps, counts = record.apps, record.counts
    fairness = by_definition(apps)
    return {
        "policy": record.policy,
        "cluster": record.cluster,
        "cluster_gpus": record.cluster_gpus,
        "workload": record.workload,
        "seed": record.seed,
        "apps": [_app(app) for app in apps],
        "max_rho": {name: each["max"] for name, each in fairness.items()},
        "mean_rho": fairness[DEFINITION]["mean"],
        "jain": fairness[DEFINITION]["jain"],
        "share_over_1": fairness[DEFINITION]["share_over_1"],
        "by_definition": fairness,
        "gpu_time_s": sum_in_order(app.gpu_time_s for app in apps),
        "makespan_s": record.makespan_s,
        "completion_s": summary(app.completion_s for app in apps),
        "queueing_s": summary(app.queueing_s for app in apps),
        "longest_wait_s": max(app.queueing_s for app in apps),
        "placement_score": _placement(apps),
        "utilisation": {"leased": record.leased_share, "running": record.running_share},
        "bound": max(app.bound for app in apps),
        "over_bound": summary(app.rho[DEFINITION] / app.bound for app in apps if app.bound > 0.0),
        "restarts": sum(app.restarts for app in apps),
        "checkpoints": sum(app.checkpoints for app in apps),
        "lost_gpu_s": sum_in_order(app.lost_gpu_s for app in apps),
        "rounds": counts.rounds,
        "events": counts.events,
        "auctions": _auctions(record),
        "invariants": {"checks": counts.checks, "violations": list(counts.violations)},
    }


def measured_of(record: RunRecord) -> Document:
    """Wall times and memory: of this machine, and never the same twice."""
    counts = record.counts
    overheads = {"bid_ms": _milliseconds(counts.bid_s), "auction_ms": _milliseconds(counts.auction_s)}
    return {"wall_s": record.wall_s, "peak_memory_mb": record.peak_memory_mb, "overheads": overheads}


def by_definition(apps: Sequence[AppOutcome]) -> dict[str, Summary]:
    """Fairness by the name of each definition of rho."""
    return {name: fairness([app.rho[name] for app in apps]) for name in apps[0].rho}


def fairness(rho: Sequence[float]) -> Summary:
    """How fair a run was by one definition of rho, smaller being better but for Jain's index."""
    of_rho = summary(rho)
    return {
        "max": max(rho),
        "mean": of_rho["mean"],
        "median": of_rho["p50"],
        "p95": of_rho["p95"],
        "share_over_1": share_over(rho, FAIR),
        "share_over_1.05": share_over(rho, NEARLY_FAIR),
        "jain": jain(rho),
    }


def jain(values: Sequence[float]) -> float:
    """Jain's index, (sum x)^2 / (n sum x^2): 1 when all are alike, 1/n when one has everything."""
    squares = sum_in_order(value * value for value in values)
    return sum_in_order(values) ** 2 / (len(values) * squares) if squares else 1.0


def share_over(values: Sequence[float], limit: float) -> float:
    """The share of values above a limit."""
    return sum(value > limit for value in values) / len(values)


def summary(values: Iterable[float]) -> Summary:
    """Mean, median and 95th percentile; None for each when there is no value."""
    ordered = sorted(values)
    if not ordered:
        return {"mean": None, "p50": None, "p95": None}
    middle = len(ordered) // 2
    median = ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2
    rank = math.ceil(0.95 * len(ordered)) - 1
    return {"mean": math.fsum(ordered) / len(ordered), "p50": median, "p95": ordered[rank]}


def percentile(values: Iterable[float], share: float) -> float:
    """The value below which this share of the values lies, linear between neighbours; nan for none.

    For distributions that are compared with others; a run's own summary goes by the nearest rank, as the testbed's.

    Args:
        values: In any order.
        share: From 0 to 1: 0.95 for the 95th percentile.
    """
    ordered = sorted(values)
    if not ordered:
        return math.nan
    place = share * (len(ordered) - 1)
    below = math.floor(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)


def _app(app: AppOutcome) -> Document:
    return {
        "name": app.name,
        "model": app.model,
        "jobs": app.jobs,
        "rho": dict(app.rho),
        "bound": app.bound,
        "submitted_at_s": app.submitted_at_s,
        "completion_s": app.completion_s,
        "queueing_s": app.queueing_s,
        "gpu_time_s": app.gpu_time_s,
        "ideal_gpu_s": app.ideal_gpu_s,
        "placement_score": app.placement_score,
        "restarts": app.restarts,
        "checkpoints": app.checkpoints,
        "lost_gpu_s": app.lost_gpu_s,
        "contention": app.contention,
    }


def _placement(apps: Sequence[AppOutcome]) -> Mapping[str, Any]:
    """How well jobs were placed: mean over apps, mean over GPU time, and eleven points of the apps' distribution."""
    ordered = sorted(app.placement_score for app in apps)
    ran_s = sum_in_order(app.running_gpu_s for app in apps)
    weighted = sum_in_order(app.placement_score * app.running_gpu_s for app in apps) / ran_s if ran_s else None
    deciles = [ordered[round(tenth * (len(ordered) - 1) / _TENTHS)] for tenth in range(_TENTHS + 1)]
    return {"mean": math.fsum(ordered) / len(ordered), "mean_of_gpu_time": weighted, "deciles": deciles}


def _auctions(record: RunRecord) -> Document:
    counts = record.counts
    granted = counts.granted_gpus + counts.leftover_gpus
    return {
        "auctions": counts.auctions,
        "unproven": counts.auctions_unproven,
        "bids": counts.bids,
        "bids_cut": counts.bids_cut,
        "share_of_empty_bids": _share(counts.empty_bids, counts.bids),
        "wins": counts.wins,
        "wins_to_nothing": counts.wins_to_nothing,
        "declined": counts.declined,
        "granted_gpus": granted,
        "renewed_gpus": counts.renewed_gpus,
        "share_of_gpus_by_leftovers": _share(counts.leftover_gpus, granted),
    }


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None


def _milliseconds(seconds: Sequence[float]) -> Summary:
    of_all = summary(1e3 * each for each in seconds)
    return {"count": len(seconds), "p50": of_all["p50"], "p95": of_all["p95"]}
