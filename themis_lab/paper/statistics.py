"""Statistics over apps and seeds, and the rows that experiments share: medians, percentiles, CDFs, metrics of a run."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping

from themis.rho import FLUID_DEFINITIONS, SCHEDULE_DEFINITIONS, RhoDefinition
from themis.values import Value
from themis_lab.simulator.metrics import jain, percentile, share_over
from themis_lab.simulator.record import RunRecord

Row = Mapping[str, str | float]
"""A row of an experiment's CSV."""

DEFINITIONS = tuple(definition.value for definition in SCHEDULE_DEFINITIONS)
"""The definitions of rho in the paper's experiments: the paper's own, and those of other simulators.

They depend on the schedule (docs/explanation/simulator.md, Definitions of rho). Never compare one with another.
"""

FLUID = tuple(definition.value for definition in FLUID_DEFINITIONS)
"""The definitions that no schedule can change (docs/explanation/fairness.md): by these, policies can be ranked."""

UNFAIR_RHO = 1.05


class Summary(Value, frozen=True, kw_only=True):
    """A quantity over seeds: median, smallest and largest value, and number of runs."""

    median: float
    least: float
    most: float
    runs: int

    @property
    def spread(self) -> tuple[float, float]:
        """Smallest and largest value."""
        return self.least, self.most


def summary(values: Iterable[float]) -> Summary:
    """Median, smallest and largest value. All are nan without values."""
    ordered = sorted(values)
    if not ordered:
        return Summary(median=math.nan, least=math.nan, most=math.nan, runs=0)
    return Summary(median=median(ordered), least=ordered[0], most=ordered[-1], runs=len(ordered))


def median(values: Iterable[float]) -> float:
    """The middle value, or the mean of the two middle ones. Nan without values."""
    return percentile(values, 0.5)


def mean(values: Iterable[float]) -> float:
    """The arithmetic mean. Nan without values."""
    numbers = list(values)
    return math.fsum(numbers) / len(numbers) if numbers else math.nan


def cdf(values: Iterable[float]) -> tuple[list[float], list[float]]:
    """The values in ascending order, and for each the share of values that are no larger."""
    ordered = sorted(values)
    return ordered, [(place + 1) / len(ordered) for place in range(len(ordered))]


def rhos(record: RunRecord, definition: str = "themis") -> list[float]:
    """Rho of every app at its end, by one definition. Nan if a stored run of an earlier version lacks it."""
    return [app.rho.get(definition, math.nan) for app in record.apps]


def max_rho(record: RunRecord, definition: str = "themis") -> float:
    """The largest rho of a run by one definition."""
    return max(rhos(record, definition), default=math.nan)


def gpu_time_h(record: RunRecord) -> float:
    """GPU hours of the apps' leases."""
    return math.fsum(app.gpu_time_s for app in record.apps) / 3600.0


def placement_scores(record: RunRecord) -> list[float]:
    """The mean placement score 1/S of every app."""
    return [app.placement_score for app in record.apps]


def run_metrics(record: RunRecord) -> dict[str, float]:
    """The metrics of one run as columns of a CSV; times in seconds unless named otherwise."""
    completions = [app.completion_s for app in record.apps]
    counts = record.counts
    own = rhos(record)
    return {
        **{f"max_rho_{definition}": max_rho(record, definition) for definition in RhoDefinition},
        "median_rho_themis": median(own),
        "p95_rho_themis": percentile(own, 0.95),
        "share_rho_above_1": share_over(own, 1.0),
        "share_rho_above_1.05": share_over(own, UNFAIR_RHO),
        "jain_rho_themis": jain(own),
        "worst_at_bound": _worst_at_bound(record),
        "max_bound": max((app.bound for app in record.apps), default=math.nan),
        "gpu_time_h": gpu_time_h(record),
        "placement_score_mean": mean(placement_scores(record)),
        "completion_mean_s": mean(completions),
        "completion_median_s": median(completions),
        "completion_p95_s": percentile(completions, 0.95),
        "queueing_max_s": max((app.queueing_s for app in record.apps), default=math.nan),
        "makespan_s": record.makespan_s,
        "leased_share": record.leased_share,
        "running_share": record.running_share,
        "restarts": float(sum(app.restarts for app in record.apps)),
        "lost_gpu_h": math.fsum(app.lost_gpu_s for app in record.apps) / 3600.0,
        "rounds": float(counts.rounds),
        "leftover_share": counts.leftover_gpus / max(1, counts.leftover_gpus + counts.granted_gpus),
        "wins_to_nothing": float(counts.wins_to_nothing),
        "empty_bid_share": counts.empty_bids / max(1, counts.bids),
        "checkpoints": float(sum(app.checkpoints for app in record.apps)),
    }


NEAR_BOUND = 1.1
"""An app is at its lower bound if its rho is at most this factor times the bound."""


def _worst_at_bound(record: RunRecord) -> float:
    """1 if the app with the largest rho is at its lower bound, so that max rho describes the workload; else 0."""
    worst = max(record.apps, key=lambda app: app.rho["themis"], default=None)
    return float(worst is not None and worst.rho["themis"] <= NEAR_BOUND * worst.bound)


def grouped(rows: Iterable[Row], *columns: str) -> dict[tuple[str | float, ...], list[Row]]:
    """Group the rows by their values in these columns, in the order of their first row."""
    groups: dict[tuple[str | float, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(tuple(row[column] for column in columns), []).append(row)
    return groups


def numbers(rows: Iterable[Row], column: str) -> list[float]:
    """A column of numbers."""
    return [float(row[column]) for row in rows]


def paired_ratios(
    rows: Iterable[Row], column: str, of: Callable[[Row], bool], to: Callable[[Row], bool]
) -> list[float]:
    """`column` of the rows that `of` selects, divided by that of the rows that `to` selects, seed by seed."""
    rows = list(rows)
    over = {row["seed"]: float(row[column]) for row in rows if of(row)}
    under = {row["seed"]: float(row[column]) for row in rows if to(row)}
    return [over[seed] / under[seed] for seed in sorted(over.keys() & under.keys(), key=float) if under[seed]]
