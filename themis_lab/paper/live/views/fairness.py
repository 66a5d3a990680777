"""Figures 9 and 10 of NSDI'20: the distribution of rho over the apps, by policy."""

from __future__ import annotations

import math
from collections.abc import Sequence

from matplotlib.figure import Figure

from themis.values import Value
from themis_lab.paper.fairness import PAPER_MAX, PAPER_MIN
from themis_lab.paper.live.findings import OURS, Line, both, column, policy_lines, ratios_to_ours
from themis_lab.paper.live.results import Results
from themis_lab.paper.live.views.panels import cdf_panels
from themis_lab.paper.plotting import fair_line
from themis_lab.paper.statistics import FLUID, UNFAIR_RHO, Row, median
from themis_lab.simulator.metrics import percentile, share_over


class Fairness(Value, frozen=True, kw_only=True):
    """Max rho by the definitions that rank policies; rho by the paper's, `themis`: maximum, spread, distribution."""

    name: str
    title: str

    def lines(self, results: Results) -> Sequence[Line]:
        """Max rho of each policy, its ratio to themis, medians and spreads."""
        return [
            *(line for definition in FLUID for line in _worst_by(results, definition)),
            *policy_lines(results, "max rho, {}", _worst),
            *_extremes(results),
            *policy_lines(results, "median rho, {}", _median),
            *policy_lines(results, "95th less 5th percentile of rho, {}", _spread),
            *policy_lines(results, f"share of apps with rho > {UNFAIR_RHO}, {{}}", _unfair),
        ]

    def draw(self, results: Results) -> Figure:
        """Draw a CDF for the testbed, and one for all runs of the simulator."""
        figure = cdf_panels(results, "rho_themis", "rho at completion", log=True)
        for axes in figure.axes:
            fair_line(axes, vertical=True)
        return figure


def _worst_by(results: Results, definition: str) -> list[Line]:
    """Max rho by a definition that no schedule changes, without the runs that were recorded before there was one."""
    lines = policy_lines(
        results,
        f"max rho by {definition}, {{}}",
        lambda rows: max(column(rows, f"rho_{definition}"), default=math.nan),
    )
    return [line for line in lines if line.testbed is not None and math.isfinite(line.testbed)]


def _worst(rows: Sequence[Row]) -> float:
    return max(column(rows, "rho_themis"))


def _median(rows: Sequence[Row]) -> float:
    return median(column(rows, "rho_themis"))


def _spread(rows: Sequence[Row]) -> float:
    values = column(rows, "rho_themis")
    return percentile(values, 0.95) - percentile(values, 0.05)


def _unfair(rows: Sequence[Row]) -> float:
    return share_over(column(rows, "rho_themis"), UNFAIR_RHO)


def _extremes(results: Results) -> list[Line]:
    """The baselines with the smallest and the largest ratio, which the paper reports."""
    live, predicted = (ratios_to_ours(values) for values in both(results, _worst))
    if not live:
        return []
    ends = (
        ("nearest", min(live, key=lambda name: live[name]), PAPER_MIN),
        ("farthest", max(live, key=lambda name: live[name]), PAPER_MAX),
    )
    return [
        Line(
            what=f"max rho, {end} baseline / {OURS}",
            paper=f"{paper:g}",
            paper_value=paper,
            testbed=live[name],
            simulator=predicted.get(name),
            remark=f"this is {name}{_verdict(live[name], paper)}.",
        )
        for end, name, paper in ends
    ]


def _verdict(ratio: float, paper: float) -> str:
    if ratio < 1.0:
        return ", whose worst app fares better than that of themis"
    return "; the lead of themis is smaller than in the paper" if ratio < paper else ""


FIG9 = Fairness(name="fig9", title="finish-time fairness across schedulers, workload 1")
FIG10 = Fairness(name="fig10", title="finish-time fairness across schedulers, workload 2")
