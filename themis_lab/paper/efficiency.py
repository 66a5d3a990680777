"""Shared code of figures 11 and 12: the total GPU time of a workload under every policy."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from matplotlib.figure import Figure

from themis.values import Value
from themis_lab.paper import macro
from themis_lab.paper.differences import differs
from themis_lab.paper.plans import PAPER_POLICIES
from themis_lab.paper.plotting import grouped_bars, legend_below, new_figure
from themis_lab.paper.port import Cell, Comparison, Done, Findings, PaperClaim, Scale
from themis_lab.paper.statistics import Row, numbers, run_metrics, summary

_ALIKE = 0.02


class PaperLine(Value, frozen=True, kw_only=True):
    """A claim of the paper: the GPU time of `over` exceeds that of `under` by `percent` percent of that of `of`."""

    what: str
    over: str
    under: str
    of: str
    text: str
    percent: float


class Efficiency(Value, frozen=True, kw_only=True):
    """Figures 11 and 12 of NSDI'20: total GPU time, for one of the two workloads."""

    name: str
    title: str
    workload: str
    alike: bool
    paper: tuple[PaperLine, ...] = ()

    def cells(self, scale: Scale, seeds: int) -> Sequence[Cell]:
        """The runs of figure 9 or 10."""
        return macro.macro_cells(self.workload, scale, seeds)

    def evaluate(self, done: Sequence[Done]) -> Findings:
        """Rows of runs, with all their metrics."""
        rows = macro.rows_of_runs(done, _measure)
        lines = [*self._totals(rows), *self._claims(rows)]
        return Findings(
            rows=rows,
            comparisons=tuple(lines),
            remarks=(*_remarks(rows), *self._causes(rows)),
            claims=self._overview(rows),
        )

    def draw(self, findings: Findings) -> Figure:
        """Draw a pair of bars per policy: aligned and staggered."""
        figure = new_figure(width=8.0)
        axes = figure.axes[0]
        by_ends = {
            ends: macro.by_policy(findings.rows, ends, "gpu_time_h") for ends in (macro.ALIGNED, macro.STAGGERED)
        }
        names = list(by_ends[macro.ALIGNED])
        grouped_bars(
            axes,
            names,
            {f"{ends} lease ends": [values[name] for name in names] for ends, values in by_ends.items()},
            colours={f"{macro.ALIGNED} lease ends": "#34658f", f"{macro.STAGGERED} lease ends": "#b9cde0"},
            labels=".0f",
        )
        axes.set_ylabel("GPU time, hours")
        least = summary(numbers(findings.rows, "ideal_gpu_h"))
        axes.axhline(least.median, color="#2b2b2b", linewidth=0.9, linestyle="--", label="work alone, at S = 1")
        legend_below(figure)
        return figure

    def _overview(self, rows: Sequence[Row]) -> tuple[PaperClaim, ...]:
        """GPU time of each of the paper's baselines over that of themis, with aligned lease ends."""
        ratios = macro.of_the_paper(macro.ratios_to_ours(rows, "gpu_time_h", macro.ALIGNED, macro.ALIGNED))
        leads = ", ".join(f"{name} {(ratio.median - 1.0) * 100.0:+.1f} %" for name, ratio in ratios.items())
        paper = (
            f"GPU time of workload {self.workload[1:]} alike"
            if self.alike
            else "; ".join(f"{each.what} by {each.text} %" for each in self.paper)
        )
        return (
            PaperClaim(
                paper=f"{paper} ({self.name})", here=f"against themis, aligned: {leads or 'no baseline was run'}"
            ),
        )

    def _totals(self, rows: Sequence[Row]) -> list[Comparison]:
        lines = []
        for ends in (macro.ALIGNED, macro.STAGGERED):
            ours = macro.by_policy(rows, ends, "gpu_time_h")[macro.OURS]
            lines.append(macro.line(f"GPU time, themis, {ends} (h)", ours))
            for name, ratio in macro.ratios_to_ours(rows, "gpu_time_h", ends, ends).items():
                known = self.alike and name in PAPER_POLICIES
                remark = f"differs by more than {_ALIKE:.0%}." if known and abs(ratio.median - 1.0) > _ALIKE else ""
                paper, number = ("alike", 1.0) if known else ("", None)
                what = f"GPU time, {name} / themis, {ends}"
                lines.append(macro.line(what, ratio, paper=paper, number=number, remark=remark))
        return lines

    def _causes(self, rows: Sequence[Row]) -> list[str]:
        present = {str(row["policy"]) for row in macro.picked(rows, ends=macro.ALIGNED)}
        return [_why(claim, rows) for claim in self.paper if {claim.over, claim.under} <= present]

    def _claims(self, rows: Sequence[Row]) -> list[Comparison]:
        present = {str(row["policy"]) for row in rows}
        claims = [claim for claim in self.paper if {claim.over, claim.under} <= present]
        return [_claim(claim, rows, ends) for claim in claims for ends in (macro.ALIGNED, macro.STAGGERED)]


def _claim(claim: PaperLine, rows: Sequence[Row], ends: str) -> Comparison:
    at = {name: _by_seed(rows, name, ends) for name in (claim.over, claim.under)}
    seeds = sorted(at[claim.over].keys() & at[claim.under].keys())
    value = summary((at[claim.over][s] - at[claim.under][s]) / at[claim.of][s] * 100.0 for s in seeds)
    if value.median < 0.0:
        remark = f"here {claim.under} takes more GPU time than {claim.over}."
    elif differs(value.median, claim.percent):
        remark = "the sign is the paper's, the size is not."
    else:
        remark = ""
    return macro.line(f"{claim.what}, {ends} (%)", value, paper=claim.text, number=claim.percent, remark=remark)


def _by_seed(rows: Sequence[Row], policy: str, ends: str) -> dict[float, float]:
    return {float(row["seed"]): float(row["gpu_time_h"]) for row in macro.picked(rows, policy, ends)}


def _measure(done: Done) -> Mapping[str, float]:
    record = done.record
    return {
        **run_metrics(record),
        "worst_gpu_h": _at_worst_gpu_s(done) / 3600.0,
        "ideal_gpu_h": math.fsum(app.ideal_gpu_s for app in record.apps) / 3600.0,
        "running_gpu_h": math.fsum(app.running_gpu_s for app in record.apps) / 3600.0,
    }


def _at_worst_gpu_s(done: Done) -> float:
    """GPU seconds that the work would take if every gang spanned the racks, where S is largest."""
    worst = {app.name: max(job.slowdown.cluster for job in app.jobs) for app in done.cell.workload().apps}
    return math.fsum(app.ideal_gpu_s * worst[app.name] for app in done.record.apps)


def _why(claim: PaperLine, rows: Sequence[Row]) -> str:
    """Explain a difference: its part due to placement, and whether placement could cause the paper's difference."""
    at = {name: _rows_by_seed(rows, name) for name in (claim.over, claim.under, claim.of)}
    seeds = sorted(at[claim.over].keys() & at[claim.under].keys())

    def part(column: str, seed: float) -> float:
        over, under = (float(at[name][seed][column]) for name in (claim.over, claim.under))
        return (over - under) / float(at[claim.of][seed]["gpu_time_h"]) * 100.0

    whole = summary(part("gpu_time_h", seed) for seed in seeds).median
    placed = summary(part("running_gpu_h", seed) for seed in seeds).median
    most = summary(
        (float(at[claim.under][seed]["worst_gpu_h"]) / float(at[claim.under][seed]["running_gpu_h"]) - 1.0) * 100.0
        for seed in seeds
    ).median
    reach = "is within" if claim.percent <= most else "is beyond"
    return (
        f"{claim.what}, aligned: of {whole:+.1f} %, {placed:+.1f} are iterations that take longer where gangs lie "
        "farther apart, the rest starts, stops and idling. With every gang at its largest S iterations would take "
        f"{most:.0f} % more than under {claim.under}: the paper's {claim.text} % {reach} what placement can make of "
        "these models."
    )


def _rows_by_seed(rows: Sequence[Row], policy: str) -> dict[float, Row]:
    return {float(row["seed"]): row for row in macro.picked(rows, policy, macro.ALIGNED)}


def _remarks(rows: Sequence[Row]) -> tuple[str, ...]:
    """Where the GPU time of themis goes: work, bad placement, and GPUs held without iterations."""
    ours = macro.picked(rows, macro.OURS, macro.ALIGNED)
    if not ours:
        return ()
    spent = summary(float(row["gpu_time_h"]) / float(row["ideal_gpu_h"]) for row in ours).median
    running = summary(float(row["running_gpu_h"]) / float(row["ideal_gpu_h"]) for row in ours).median
    best = min(float(row["gpu_time_h"]) / float(row["ideal_gpu_h"]) for row in rows)
    return (
        f"Under themis (aligned) a workload takes {spent:.3g} times its work at S = 1: {running - 1:.1%} of that work "
        f"more through placement, {spent - running:.1%} through starting, stopping and idling. No policy here takes "
        f"less than {best:.3g} times.",
    )
