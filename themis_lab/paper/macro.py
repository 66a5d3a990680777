"""The paper's macrobenchmark, shared by figures 9 to 13: workloads 1 and 2 on the testbed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from themis.choices import LeaseEnds
from themis_lab.paper.plans import ENDS, PAPER_POLICIES, Load, policy_cells
from themis_lab.paper.port import Cell, Comparison, Done, Scale
from themis_lab.paper.statistics import DEFINITIONS, FLUID, Row, Summary, numbers, paired_ratios, summary
from themis_lab.simulator.record import AppOutcome

CLUSTER = "testbed"
ALIGNED, STAGGERED = LeaseEnds.ALIGNED.value, LeaseEnds.STAGGERED.value
OURS = "themis"

LOADS: Mapping[Scale, Mapping[str, Load]] = {
    Scale.QUICK: {"w1": Load(name="w1-small", options={}), "w2": Load(name="w2-small", options={})},
    Scale.PAPER: {"w1": Load(name="w1", options={}), "w2": Load(name="w2", options={})},
}
"""The two workloads at each scale."""


def macro_cells(workload: str, scale: Scale, seeds: int, names: Sequence[str] = ()) -> list[Cell]:
    """The runs of one workload: each policy with aligned and with staggered lease ends, on the testbed's 64 GPUs."""
    return list(policy_cells(LOADS[scale][workload], CLUSTER, seeds, names=names, labels={"workload": workload}))


def rows_of_apps(done: Iterable[Done]) -> tuple[dict[str, str | float], ...]:
    """Return a row per app: the labels of its run, and its outcome."""
    return tuple({**run.cell.labels, **_app(app)} for run in done for app in run.record.apps)


def rows_of_runs(done: Iterable[Done], measure: Callable[[Done], Mapping[str, float]]) -> tuple[Row, ...]:
    """Return a row per run: its labels, and its measures."""
    return tuple({**run.cell.labels, **measure(run)} for run in done)


def picked(rows: Iterable[Row], policy: str = "", ends: str = "", workload: str = "") -> list[Row]:
    """The rows of one policy, one kind of lease ends and one workload. Empty selects all."""
    wanted = {key: value for key, value in (("policy", policy), ("ends", ends), ("workload", workload)) if value}
    return [row for row in rows if all(row[key] == value for key, value in wanted.items())]


def by_policy(rows: Sequence[Row], ends: str, column: str) -> dict[str, Summary]:
    """Statistics of a column over seeds for each policy, with one kind of lease ends."""
    chosen = picked(rows, ends=ends)
    names = dict.fromkeys(str(row["policy"]) for row in chosen)
    return {name: summary(numbers(picked(chosen, name), column)) for name in names}


def ratios_to_ours(rows: Sequence[Row], column: str, ends: str, ours_ends: str) -> dict[str, Summary]:
    """Each other policy's column over that of themis, seed by seed."""
    names = [name for name in dict.fromkeys(str(row["policy"]) for row in rows) if name != OURS]
    return {name: summary(_paired(rows, column, (name, ends), (OURS, ours_ends))) for name in names}


def line(what: str, value: Summary, *, paper: str = "", number: float | None = None, remark: str = "") -> Comparison:
    """A line of the comparison from a summary over seeds."""
    spread = value.spread if value.runs > 1 else None
    return Comparison(what=what, paper=paper, paper_value=number, ours=value.median, spread=spread, remark=remark)


def of_the_paper(values: Mapping[str, Summary]) -> dict[str, Summary]:
    """Keep only the policies that the paper compares with."""
    return {name: value for name, value in values.items() if name in PAPER_POLICIES}


def both_ends() -> tuple[tuple[str, str], ...]:
    """Pairs (lease ends of the baseline, of themis) with equal ends, for both kinds."""
    return tuple((ends.value, ends.value) for ends in ENDS)


def _paired(rows: Sequence[Row], column: str, over: tuple[str, str], under: tuple[str, str]) -> list[float]:
    return paired_ratios(
        rows,
        column,
        lambda row: (row["policy"], row["ends"]) == over,
        lambda row: (row["policy"], row["ends"]) == under,
    )


def _app(app: AppOutcome) -> dict[str, str | float]:
    return {
        "app": app.name,
        "model": app.model,
        "jobs": app.jobs,
        **{f"rho_{definition}": app.rho[definition] for definition in (*FLUID, *DEFINITIONS)},
        "bound": app.bound,
        "contention": app.contention,
        "completion_s": app.completion_s,
        "queueing_s": app.queueing_s,
        "gpu_time_h": app.gpu_time_s / 3600.0,
        "placement_score": app.placement_score,
        "restarts": app.restarts,
    }
