"""Figures 11 and 12 of NSDI'20: the total GPU time of a workload, by policy."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from matplotlib.figure import Figure

from themis.values import Value
from themis_lab.paper.efficiency import PaperLine
from themis_lab.paper.fig12 import EXPERIMENT as PAPER_FIG12
from themis_lab.paper.live.findings import Line, both, column, policy_lines, ratios_to_ours
from themis_lab.paper.live.results import SIMULATOR, TESTBED, Results
from themis_lab.paper.plotting import grouped_bars, legend_below, new_figure
from themis_lab.paper.statistics import Row, summary

_MINUTE_S = 60.0
_COLOURS = {TESTBED: "#34658f", SIMULATOR: "#b9cde0"}


class Efficiency(Value, frozen=True, kw_only=True):
    """GPU time: from the grant of each lease to its end. `alike`: whether the paper finds about equal times."""

    name: str
    title: str
    alike: bool
    paper: tuple[PaperLine, ...] = ()

    def lines(self, results: Results) -> Sequence[Line]:
        """Totals, ratios to themis, and the paper's claims."""
        live, predicted = both(results, _gpu_minutes)
        return [
            *policy_lines(results, "GPU time, {} (min)", _gpu_minutes),
            *self._ratios(ratios_to_ours(live), ratios_to_ours(predicted)),
            *(_claim(claim, live, predicted) for claim in self.paper if {claim.over, claim.under} <= live.keys()),
        ]

    def draw(self, results: Results) -> Figure:
        """Draw a pair of bars per policy: measured and predicted."""
        figure = new_figure(width=8.0)
        axes = figure.axes[0]
        live, predicted = both(results, _gpu_minutes)
        bars = {
            source: [summary([values[name]]) for name in live]
            for source, values in ((TESTBED, live), (SIMULATOR, predicted))
        }
        grouped_bars(axes, list(live), bars, colours=_COLOURS, labels=".0f")
        axes.set_ylabel("GPU time, real minutes,\nreplayed and trained apps together")
        legend_below(figure)
        return figure

    def _ratios(self, live: Mapping[str, float], predicted: Mapping[str, float]) -> list[Line]:
        paper, number = ("alike", 1.0) if self.alike else ("", None)
        return [
            Line(
                what=f"GPU time, {name} / themis",
                paper=paper,
                paper_value=number,
                testbed=ratio,
                simulator=predicted.get(name),
            )
            for name, ratio in live.items()
        ]


def _gpu_minutes(rows: Sequence[Row]) -> float:
    return math.fsum(column(rows, "gpu_time_s")) / _MINUTE_S


def _claim(claim: PaperLine, live: Mapping[str, float], predicted: Mapping[str, float]) -> Line:
    value = _percent(claim, live)
    remark = "" if value >= 0 else f"here {claim.under} takes more GPU time than {claim.over}."
    return Line(
        what=f"{claim.what} (%)",
        paper=claim.text,
        paper_value=claim.percent,
        testbed=value,
        simulator=_percent(claim, predicted),
        remark=remark,
    )


def _percent(claim: PaperLine, minutes: Mapping[str, float]) -> float:
    return (minutes[claim.over] - minutes[claim.under]) / minutes[claim.of] * 100.0


FIG11 = Efficiency(name="fig11", title="total GPU time, workload 1", alike=True)
FIG12 = Efficiency(name="fig12", title="total GPU time, workload 2", alike=False, paper=PAPER_FIG12.paper)
