"""Figure 17: max rho by the error of the apps' estimates. In the paper an error of 20 % changes it by 10.76 %."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from matplotlib.figure import Figure

from themis.values import Value
from themis_lab.paper import sweeps
from themis_lab.paper.plans import LEAD_S, make_workload, settings_of, workload_arguments
from themis_lab.paper.plotting import fair_line, lines, new_figure
from themis_lab.paper.port import Cell, Comparison, Done, Findings, PaperClaim, Scale
from themis_lab.paper.statistics import Row, Summary, mean, median, run_metrics
from themis_lab.paper.strategies import erring_agent
from themis_lab.simulator.record import RunRecord

ERRORS: Mapping[Scale, Sequence[int]] = {Scale.QUICK: (0, 10, 20), Scale.PAPER: (0, 5, 10, 15, 20)}
"""X in percent: errors are uniform in -X to X; each app has one error of iterations and one of S."""

DRAWS: Mapping[Scale, int] = {Scale.QUICK: 2, Scale.PAPER: 5}
"""Number of random errors on each workload."""

PAPER_CHANGE = 10.76
_CHANGE = "max_rho_change_percent"


class Errors(Value, frozen=True, kw_only=True):
    """Figure 17 of NSDI'20: themis on the simulated cluster with agents that err."""

    name: str = "fig17"
    title: str = "max rho as agents err in iterations and S"

    def cells(self, scale: Scale, seeds: int) -> Sequence[Cell]:
        """Themis at each error. The other runs are compared with runs without errors."""
        return [
            _cell(scale, seed, error, draw)
            for seed in range(1, seeds + 1)
            for error in ERRORS[scale]
            for draw in range(1, DRAWS[scale] + 1 if error else 2)
        ]

    def evaluate(self, done: Sequence[Done]) -> Findings:
        """Return rows of runs, each with its changes from the run on the same workload without errors."""
        honest = {run.cell.labels["seed"]: run.record for run in done if not run.cell.labels["error_percent"]}
        rows = tuple(_row(run, honest[run.cell.labels["seed"]]) for run in done)
        largest = max(sweeps.axis(rows, "error_percent"))
        compared = [
            line for error in sweeps.axis(rows, "error_percent") if error for line in _lines(rows, error, largest)
        ]
        return Findings(
            rows=rows,
            comparisons=(_honest(rows), *compared),
            remarks=_remarks(rows, largest),
            claims=(_claim(rows, largest),),
        )

    def draw(self, findings: Findings) -> Figure:
        """Draw max rho by error, and the changes of single apps' rho."""
        rows = findings.rows
        xs = sweeps.axis(rows, "error_percent")
        figure = new_figure(2)
        left, right = figure.axes

        def over_runs(column: str) -> list[Summary]:
            return [sweeps.over_seeds(rows, column, error_percent=error) for error in xs]

        lines(left, xs, {"max rho": over_runs(sweeps.MAX_RHO)}, "error X, %", "max rho (definition themis)")
        fair_line(left)
        left.set_ylim(bottom=0.0)
        changes = {
            "mean over apps": over_runs("app_change_mean_percent"),
            "largest of any app": over_runs("app_change_max_percent"),
        }
        lines(right, xs, changes, "error X, %", "change of an app's rho, %")
        right.set_ylim(bottom=0.0)
        right.legend(loc="upper left")
        for axes in (left, right):
            axes.set_xticks(xs)
        return figure


def _cell(scale: Scale, seed: int, error: int, draw: int) -> Cell:
    cluster = sweeps.SIMULATED[scale]
    return Cell(
        labels={"policy": sweeps.OURS, "ends": sweeps.ALIGNED, "error_percent": error, "seed": seed, "draw": draw},
        make_workload=make_workload,
        workload_arguments=workload_arguments(sweeps.simulated_load(scale), seed, cluster),
        settings=settings_of(cluster, sweeps.OURS, seed),
        make_agent=erring_agent if error else None,
        agent_arguments={"error": error / 100, "seed": 1000 * seed + draw} if error else {},
    )


def _row(run: Done, honest: RunRecord) -> Row:
    metrics = run_metrics(run.record)
    before = run_metrics(honest)[sweeps.MAX_RHO]
    moved = [
        abs(app.rho["themis"] / then.rho["themis"] - 1.0) * 100.0
        for app, then in zip(run.record.apps, honest.apps, strict=True)
    ]
    return {
        **run.cell.labels,
        **metrics,
        _CHANGE: (metrics[sweeps.MAX_RHO] / before - 1.0) * 100.0,
        "app_change_mean_percent": mean(moved),
        "app_change_median_percent": median(moved),
        "app_change_max_percent": max(moved, default=math.nan),
    }


def _honest(rows: Sequence[Row]) -> Comparison:
    return sweeps.line("max rho, themis, without errors", sweeps.over_seeds(rows, sweeps.MAX_RHO, error_percent=0))


def _lines(rows: Sequence[Row], error: float, largest: float) -> list[Comparison]:
    change = sweeps.over_seeds(rows, _CHANGE, error_percent=error)
    is_largest = error == largest
    moved = sweeps.over_seeds(rows, "app_change_mean_percent", error_percent=error)
    return [
        sweeps.line(
            f"change of max rho, X = {error:g} % (%)",
            change,
            paper=f"{PAPER_CHANGE:g}" if is_largest else "",
            number=PAPER_CHANGE if is_largest else None,
            remark=_verdict(change.median) if is_largest else "",
        ),
        sweeps.line(f"mean change of an app's rho, either way, X = {error:g} % (%)", moved),
    ]


def _claim(rows: Sequence[Row], largest: float) -> PaperClaim:
    change = sweeps.over_seeds(rows, _CHANGE, error_percent=largest)
    fluid = sweeps.ratios(rows, sweeps.BY_FLUID, {"error_percent": largest}, {"error_percent": 0})
    by_fluid = [100.0 * (value - 1.0) for value in (fluid.median, fluid.least, fluid.most)]
    return PaperClaim(
        paper=f"an error of {largest:g} % costs {PAPER_CHANGE:g} % of max rho (fig17)",
        here=f"max rho changes by {change.median:+.1f} % ({change.least:+.1f} to {change.most:+.1f} %)",
        ratio=f"{change.median / PAPER_CHANGE:.2f}",
        fluid="{:+.1f} % ({:+.1f} to {:+.1f} %)".format(*by_fluid),
    )


def _verdict(change: float) -> str:
    if change < -1.0:
        return "max rho falls."
    return "no more than in the paper." if change <= PAPER_CHANGE else "more than in the paper."


def _remarks(rows: Sequence[Row], largest: float) -> tuple[str, ...]:
    changes = [float(row[_CHANGE]) for row in sweeps.where(rows, error_percent=largest)]
    worse, better = sum(change > 1.0 for change in changes), sum(change < -1.0 for change in changes)
    return (
        f"At X = {largest:g} % max rho rises by more than 1 % in {worse} of {len(changes)} runs and falls by more than "
        f"1 % in {better}; its mean change is {mean(changes):.3g} %. A change either way is mostly another course of "
        "events, which any small difference sets off.",
        "Errors are in the iterations left, of this phase and of later ones, and in S; a believed S is at least "
        "1, so models that are insensitive to placement can only appear worse than they are. T_ideal is not changed. "
        f"Leases become renewable {LEAD_S:g} s before their ends.",
    )


EXPERIMENT = Errors()
