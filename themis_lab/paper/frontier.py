"""What `fair_finish` trades by its preemption margin: fairness against restarts and mean completion time.

The runs without a margin are those of the experiment `fairness`, so both together cost little more than that one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from rm_plugin.arbiter.round_values import RoundSettings
from themis.values import Value
from themis_lab.paper.fluid_fairness import CASES, EFFICIENT, FIRST_SEED, OURS, REFERENCE, Case
from themis_lab.paper.plans import make_workload, policies, settings_of, workload_arguments
from themis_lab.paper.plotting import COLOURS, INK, colour_of, legend_below
from themis_lab.paper.port import Cell, Done, Findings, Scale
from themis_lab.paper.report_frame import number_text
from themis_lab.paper.statistics import Row, grouped, max_rho, mean, median, paired_ratios
from themis_lab.simulator.compare import RANKED_BY, ratios_by_seed

DEFAULT_MARGIN = RoundSettings().preemption_margin

MARGINS = (0.0, 0.5, DEFAULT_MARGIN, 0.9, 0.95, 1.0)

WORKLOADS = 2
"""How many of the workloads of `fairness` are run, from the first on: those whose jobs are elastic searches."""

HEADINGS = (
    "workload and margin",
    "ratio, median",
    "ratio, worst",
    f"completion / {EFFICIENT}",
    f"GPU time / {REFERENCE}",
    f"restarts / {REFERENCE}",
)

_COSTS: Mapping[str, tuple[str, str]] = {
    "restarts": (REFERENCE, f"restarts / {REFERENCE}"),
    "completion_s": (EFFICIENT, f"mean completion / {EFFICIENT}"),
}
"""What each column of panels sets the ratio against: a column of the rows, and the policy it is relative to."""

_NAMED = (0.0, DEFAULT_MARGIN, 1.0)
"""Margins whose points the figure names; the names of all would cover each other."""

_DRAWN_BESIDE = {"srsf": "^", "srtf": "s", "themis": "D"}
"""Other policies in the figure, with their markers."""


class Frontier(Value, frozen=True, kw_only=True):
    """`fair_finish` at several preemption margins, and the other policies that its ratios are relative to."""

    name: str = "frontier"
    title: str = f"what the preemption margin of {OURS} trades"

    def cells(self, scale: Scale, seeds: int) -> Sequence[Cell]:
        """For each workload and seed: a run for each margin, and one for each other policy."""
        return [
            cell
            for case in CASES[scale][:WORKLOADS]
            for seed in range(FIRST_SEED, FIRST_SEED + seeds)
            for cell in _cells(case, seed)
        ]

    def evaluate(self, done: Sequence[Done]) -> Findings:
        """Return a row per run, and a table with a line per workload and margin."""
        rows = tuple(_row(run) for run in done)
        lines = [
            (
                f"{workload}: {number_text(margin)}",
                f"{median(point.ratios):.2f}",
                f"{max(point.ratios):.2f}",
                *(f"{point.costs[column]:.2f}" for column in ("completion_s", "gpu_time_s", "restarts")),
            )
            for workload, own in _by_workload(rows).items()
            for margin, point in frontier(own).items()
        ]
        return Findings(rows=rows, comparisons=(), table=(HEADINGS, *lines), remarks=_remarks(rows))

    def draw(self, findings: Findings) -> Figure:
        """Draw for each workload the ratio by restarts and by mean completion: a curve through the margins."""
        workloads = _by_workload(findings.rows)
        figure = Figure(figsize=(9.6, 0.6 + 3.0 * len(workloads)), layout="constrained")
        panels = figure.subplots(len(workloads), len(_COSTS), squeeze=False, sharey="row")
        for of_workload, (name, rows) in zip(panels, workloads.items(), strict=True):
            for axes, column in zip(of_workload, _COSTS, strict=True):
                _draw_panel(axes, rows, column)
            of_workload[0].set_title(name, loc="left")
            of_workload[0].set_ylabel("ratio to the best policy")
        legend_below(figure, 5)
        return figure


class Point(Value, frozen=True, kw_only=True):
    """A policy or margin on one workload: its ratio by seed, and each cost as the mean of ratios of the same seed."""

    ratios: tuple[float, ...]
    costs: Mapping[str, float]


def frontier(rows: Sequence[Row]) -> dict[float, Point]:
    """The points of a workload by margin. Each margin is compared with the other policies, not with other margins."""
    others = [row for row in rows if row["policy"] != OURS]
    return {
        float(margin): _point([*others, *own], OURS)
        for (margin,), own in grouped((row for row in rows if row["policy"] == OURS), "margin").items()
    }


def _cells(case: Case, seed: int) -> Iterator[Cell]:
    # A margin has no effect on other policies: theirs is the default, so that `fairness` shares their runs.
    runs = [*((OURS, margin) for margin in MARGINS), *((policy, DEFAULT_MARGIN) for policy in policies())]
    for policy, margin in runs:
        rounds = RoundSettings(preemption_margin=margin)
        yield Cell(
            labels={"workload": case.name, "policy": policy, "margin": margin, "seed": seed},
            make_workload=make_workload,
            workload_arguments=workload_arguments(case.load, seed, case.cluster),
            settings=settings_of(case.cluster, policy, seed, rounds=rounds),
        )


def _row(run: Done) -> Row:
    apps = run.record.apps
    return {
        **run.cell.labels,
        **{f"max_rho_{name}": max_rho(run.record, name) for name in RANKED_BY},
        "completion_s": mean(app.completion_s for app in apps),
        "gpu_time_s": sum(app.gpu_time_s for app in apps),
        "restarts": float(sum(app.restarts for app in apps)),
    }


def _by_workload(rows: Sequence[Row]) -> dict[str, list[Row]]:
    return {str(name): own for (name,), own in grouped(rows, "workload").items()}


def _point(rows: Sequence[Row], policy: str) -> Point:
    documents = [{**row, "max_rho": {name: row[f"max_rho_{name}"] for name in RANKED_BY}} for row in rows]

    def relative(column: str, other: str) -> float:
        pairs = paired_ratios(rows, column, lambda row: row["policy"] == policy, lambda row: row["policy"] == other)
        return mean(pairs)

    costs = {column: relative(column, other) for column, (other, _) in _COSTS.items()}
    return Point(
        ratios=tuple(ratios_by_seed(documents)[policy].values()),
        costs={**costs, "gpu_time_s": relative("gpu_time_s", REFERENCE)},
    )


def _remarks(rows: Sequence[Row]) -> tuple[str, ...]:
    seeds = sorted({int(row["seed"]) for row in rows})
    return (
        "The ratio is that of the experiment `fairness`, to the best of the other policies. Completion time, GPU time "
        "and restarts are ratios of runs with the same seed, their mean over seeds.",
        f"Seeds {number_text(seeds[0])} to {number_text(seeds[-1])}. The default margin is {DEFAULT_MARGIN:g}.",
    )


def _draw_panel(axes: Axes, rows: Sequence[Row], column: str) -> None:
    points = frontier(rows)
    at = [point.costs[column] for point in points.values()]
    for what, of, fill in (("median", median, COLOURS[OURS]), ("worst seed", max, "white")):
        ratios = [of(point.ratios) for point in points.values()]
        label = f"{OURS}, {what}"
        axes.plot(at, ratios, marker="o", markersize=4.5, label=label, color=COLOURS[OURS], markerfacecolor=fill)
    for margin, x, point in zip(points, at, points.values(), strict=True):
        if margin in _NAMED:
            at_worst = (x, max(point.ratios))
            axes.annotate(f"{margin:g}", at_worst, (0, 5), textcoords="offset points", ha="center", size=7)
    # Other policies at their median only: their worst seeds would squeeze the curve.
    others = [row for row in rows if row["policy"] != OURS]
    for policy, marker in _DRAWN_BESIDE.items():
        own = _point([*others, *(row for row in rows if row["policy"] == OURS)], policy)
        label = f"{policy}, median"
        axes.plot(own.costs[column], median(own.ratios), marker, color=colour_of(policy), label=label)
    axes.set_xlabel(_COSTS[column][1])
    axes.axhline(1.0, color=INK, linewidth=0.9, linestyle="--")
    axes.grid(visible=True)


EXPERIMENT = Frontier()
