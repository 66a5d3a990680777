"""Figures 7 and 8: total throughput of twenty tenants, as fair shares promise it and as jobs have it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from themis.values import Value
from themis_lab.paper.oef.driver import run
from themis_lab.paper.oef.experiment import rule
from themis_lab.paper.oef.workload import many_tenants
from themis_lab.paper.own_runs import line, panel_of, point, row
from themis_lab.paper.plotting import grouped_bars, legend_below, new_figure
from themis_lab.paper.port import Comparison, Findings, PaperClaim, Scale
from themis_lab.paper.statistics import Row, Summary, summary

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TENANTS = 20
ROUNDS = {Scale.QUICK: 50, Scale.PAPER: 200}
BASELINES = ("max_min", "gandiva_fair", "gavel", "gavel_capped", "pure_efficiency")


class Throughput(Value, frozen=True, kw_only=True):
    """One mode of OEF against the baselines, which run with the plain placer."""

    name: str
    title: str
    mode: str
    paper_estimated: str
    paper_actual: str
    number_estimated: float | None = None
    number_actual: float | None = None

    def run(self, scale: Scale, seeds: int) -> Findings:
        """Seeds draw models and gangs. All numbers are over max-min fairness with the plain placer."""
        rows: list[Row] = []
        for seed in range(1, seeds + 1):
            loads = many_tenants(seed, TENANTS)
            names = [load.tenant_id for load in loads]
            first: dict[str, float] = {}
            for name in (*BASELINES, self.mode):
                for compact in (False, True):
                    record = run(loads, rule(name), compact=compact, rounds=ROUNDS[scale])
                    numbers = {
                        "estimated": sum(record.mean_estimated(tenant) for tenant in names),
                        "actual, OEF's placer" if compact else "actual, plain placer": sum(
                            record.mean_actual(tenant) for tenant in names
                        ),
                    }
                    first = first or numbers
                    for series, value in numbers.items():
                        base = first["estimated" if series == "estimated" else "actual, plain placer"]
                        if series != "estimated" or not compact:
                            rows.append(row("over max-min", series, name, seed, value / base))
        return Findings(rows=tuple(rows), comparisons=self._comparisons(rows), claims=self._claims(rows))

    def _over(self, rows: Sequence[Row], series: str, baseline: str, baseline_series: str = "") -> Summary:
        """Ours over a baseline, seed by seed."""
        seeds = sorted({int(each["seed"]) for each in rows})
        own = [each for each in rows if each["series"] == series and each["group"] == self.mode]
        other = [each for each in rows if each["series"] == (baseline_series or series) and each["group"] == baseline]
        return summary(
            next(float(each["value"]) for each in own if each["seed"] == seed)
            / next(float(each["value"]) for each in other if each["seed"] == seed)
            for seed in seeds
        )

    def _comparisons(self, rows: Sequence[Row]) -> tuple[Comparison, ...]:
        actual, plain = "actual, OEF's placer", "actual, plain placer"
        same = (0.95, 1.05) if self.mode == "noncooperative" else None
        # Of figure 8 only the order counts: cooperative OEF comes before each baseline.
        first = (1.0, math.inf) if self.mode == "cooperative" else None
        near = "With the published speeds even the unfair upper bound (last line) is not far above max-min."
        lines = [
            line(
                f"estimated, {self.mode} over {baseline}",
                self._over(rows, "estimated", baseline),
                paper=self.paper_estimated,
                number=self.number_estimated,
                band=same if baseline == "gavel" else first,
                why=why,
            )
            for baseline, why in (
                ("gandiva_fair", near if self.number_estimated else ""),
                ("gavel", near if self.number_estimated else ""),
                (
                    "gavel_capped",
                    "A cap of one GPU for each tenant leaves GPUs idle if there are fewer tenants than GPUs.",
                ),
            )
        ]
        lines += [
            line(
                f"actual, {self.mode} with OEF's placer over {baseline} with the plain one",
                self._over(rows, actual, baseline, plain),
                paper=self.paper_actual,
                number=self.number_actual,
                band=first,
                why="Here every tenant has single-worker jobs that fill the GPUs which its large gangs cannot use.",
            )
            for baseline in ("gandiva_fair", "gavel")
        ]
        lines += [
            line(f"actual, {self.mode} over {baseline}, both with OEF's placer", self._over(rows, actual, baseline))
            for baseline in ("gandiva_fair", "gavel")
        ]
        lines.append(
            line("estimated, pure efficiency over max-min", point(rows, "over max-min", "estimated", "pure_efficiency"))
        )
        return tuple(lines)

    def _claims(self, rows: Sequence[Row]) -> tuple[PaperClaim, ...]:
        estimated, actual = (
            self._over(rows, "estimated", "gandiva_fair"),
            self._over(rows, "actual, OEF's placer", "gandiva_fair", "actual, plain placer"),
        )
        return (
            PaperClaim(
                paper=f"{self.mode} OEF: estimated {self.paper_estimated}, actual {self.paper_actual} "
                f"(fig. {self.name.removeprefix('oef_fig')})",
                here=f"{estimated.median:.2f} and {actual.median:.2f} times Gandiva_fair",
            ),
        )

    def draw(self, findings: Findings) -> Figure:
        """Draw totals over max-min by rule."""
        figure = new_figure(width=8.0)
        groups, series = panel_of(findings.rows, "over max-min")
        grouped_bars(figure.axes[0], [str(group) for group in groups], series, labels=".2f")
        figure.axes[0].set(ylabel="total throughput over max-min", title="twenty tenants")
        legend_below(figure)
        return figure


EXPERIMENTS = (
    Throughput(
        name="oef_fig7",
        title="total throughput under non-cooperative OEF",
        mode="noncooperative",
        paper_estimated="about equal",
        paper_actual="up to 1.10",
        number_actual=1.10,
    ),
    Throughput(
        name="oef_fig8",
        title="total throughput under cooperative OEF",
        mode="cooperative",
        paper_estimated="1.20",
        paper_actual="1.32",
        number_estimated=1.20,
        number_actual=1.32,
    ),
)
