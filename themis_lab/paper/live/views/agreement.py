"""Agreement of simulator and testbed: completion times of the same apps in the same run."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.figure import Figure

from themis.values import Value
from themis_lab.paper.live.findings import Line, column
from themis_lab.paper.live.results import SIMULATOR, TESTBED, Results
from themis_lab.paper.plotting import INK, colour_of, legend_below, new_figure, plain_log_axis
from themis_lab.paper.statistics import grouped, median

_MARKERS = "os^Dv<>Pph"


class Agreement(Value, frozen=True, kw_only=True):
    """Predicted over measured completion time of each app; the median over an app's predictions."""

    name: str = "agreement"
    title: str = "completion times, predicted and measured"

    def lines(self, results: Results) -> Sequence[Line]:
        """The median over the apps of each policy, and of all together."""
        ratios = {policy: [there / here for here, there in _pairs(results, policy)] for policy in results.policies}
        everything = [ratio for values in ratios.values() for ratio in values]
        return [
            *(_line(f"completion, predicted / measured, {policy}", values) for policy, values in ratios.items()),
            _line("completion, predicted / measured, all policies", everything),
        ]

    def draw(self, results: Results) -> Figure:
        """Draw a dot per app and policy. On the diagonal the two agree."""
        figure = new_figure(width=5.2, height=4.6)
        axes = figure.axes[0]
        pairs = {policy: _pairs(results, policy) for policy in results.policies}
        ends = [value for some in pairs.values() for pair in some for value in pair]
        for place, (policy, some) in enumerate(pairs.items()):
            here, there = zip(*some, strict=True)
            marker = _MARKERS[place % len(_MARKERS)]
            axes.scatter(here, there, s=14, marker=marker, label=policy, color=colour_of(policy, place), alpha=0.8)
        axes.plot([min(ends), max(ends)], [min(ends), max(ends)], color=INK, linewidth=0.9, linestyle="--")
        axes.set(xscale="log", yscale="log", xlabel="completion on the testbed, s", ylabel="predicted completion, s")
        plain_log_axis(axes, "x")
        plain_log_axis(axes, "y")
        axes.grid(visible=True)
        legend_below(figure, 4)
        return figure


def _pairs(results: Results, policy: str) -> list[tuple[float, float]]:
    """(measured, predicted) completion of each app, in seconds."""
    predicted = grouped(results.of(SIMULATOR, policy), "app")
    return [
        (float(row["completion_s"]), median(column(predicted[row["app"],], "completion_s")))
        for row in results.of(TESTBED, policy)
        if (row["app"],) in predicted
    ]


def _line(what: str, ratios: Sequence[float]) -> Line:
    spread = f"apps from {min(ratios):.2f} to {max(ratios):.2f}." if ratios else ""
    return Line(what=f"{what}, median", testbed=None, simulator=median(ratios), remark=spread)


AGREEMENT = Agreement()
