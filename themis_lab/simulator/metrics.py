"""The figures of a run as one JSON document. Values that differ between runs of the same input have their own keys.

Each figure of rho names its definition. A median is the middle value or the mean of the two middle ones. A 95th
percentile is the value of the nearest rank, as in the testbed's report.
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
"""The definition of rho that the document's scalars use."""

FAIR = 1.0
NEARLY_FAIR = 1.05
MEASURED = ("wall_s", "peak_memory_mb", "overheads")
"""Keys of the document that depend on the machine and differ between runs. All others are reproducible."""

_TENTHS = 10


def document_of(record: RunRecord) -> Document:
    """Return the whole document: the metrics, and the run's time and memory on this machine."""
    metrics = metrics_of(record)
    invariants = metrics.pop("invariants")
    return {**metrics, **measured_of(record), "invariants": invariants}


def metrics_of(record: RunRecord) -> Document:
    """Return the reproducible part: the same input gives the same bytes."""
    apps, counts = record.apps, record.counts
    fairness = by_definition(apps)
    return {
        "policy": record.policy,
        "cluster": record.cluster,
        "cluster_gpus": record.cluster_gpus,
        **({"cluster_cpu_nodes": record.cluster_cpu_nodes} if record.cluster_cpu_nodes else {}),
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
    """Return wall times and memory, which differ between runs."""
    counts = record.counts
    overheads = {"bid_ms": _milliseconds(counts.bid_s), "auction_ms": _milliseconds(counts.auction_s)}
    return {"wall_s": record.wall_s, "peak_memory_mb": record.peak_memory_mb, "overheads": overheads}


def by_definition(apps: Sequence[AppOutcome]) -> dict[str, Summary]:
    """Return the fairness figures of each definition of rho, by its name."""
    return {name: fairness([app.rho[name] for app in apps]) for name in apps[0].rho}


def fairness(rho: Sequence[float]) -> Summary:
    """Return the fairness figures of one definition of rho. Smaller is better, except for Jain's index."""
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
    """Return Jain's index, (sum x)^2 / (n sum x^2): 1 if all values are equal, 1/n if one has everything.

    Example: 1, 1, 2 gives 16 / (3 * 6) = 0.89.
    """
    squares = sum_in_order(value * value for value in values)
    return sum_in_order(values) ** 2 / (len(values) * squares) if squares else 1.0


def share_over(values: Sequence[float], limit: float) -> float:
    """Return the share of values above a limit."""
    return sum(value > limit for value in values) / len(values)


def summary(values: Iterable[float]) -> Summary:
    """Return mean, median and 95th percentile, each None if there are no values."""
    ordered = sorted(values)
    if not ordered:
        return {"mean": None, "p50": None, "p95": None}
    middle = len(ordered) // 2
    median = ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2
    rank = math.ceil(0.95 * len(ordered)) - 1
    return {"mean": math.fsum(ordered) / len(ordered), "p50": median, "p95": ordered[rank]}


def percentile(values: Iterable[float], share: float) -> float:
    """Return a quantile of the values, interpolated linearly, or NaN without values.

    Use it to compare distributions. A run's own summary uses the nearest rank, as the testbed does.

    Args:
        values: In any order.
        share: 0 to 1, for example 0.95 for the 95th percentile.
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
    """Return the placement scores: mean over apps, mean over GPU time, and eleven points of the apps' distribution."""
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
