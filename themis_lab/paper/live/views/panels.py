"""Two panels side by side: the testbed's results, and the simulator's predictions."""

from __future__ import annotations

from matplotlib.figure import Figure

from themis_lab.paper.live.findings import column
from themis_lab.paper.live.results import SIMULATOR, TESTBED, Results
from themis_lab.paper.plotting import cdf_lines, legend_below, new_figure

_TITLES = {TESTBED: "testbed", SIMULATOR: "predicted by the simulator"}


def cdf_panels(results: Results, name: str, xlabel: str, *, log: bool = False) -> Figure:
    """Draw a CDF over the apps for each policy, one panel per source with a common scale.

    Predictions of a policy are merged.

    Args:
        results: The results to draw.
        name: A column of the rows.
        xlabel: Label of the values.
        log: A logarithmic axis of values.
    """
    figure = new_figure(2, height=3.6, sharey=True)
    for axes, (source, title) in zip(figure.axes, _TITLES.items(), strict=True):
        series = {policy: column(results.of(source, policy), name) for policy in results.policies}
        cdf_lines(axes, series, xlabel, log=log)
        axes.set_title(title)
    left, right = figure.axes
    right.set_ylabel("")
    left.sharex(right)
    left.set_xlim(min(axes.dataLim.x0 for axes in figure.axes), max(axes.dataLim.x1 for axes in figure.axes))
    legend_below(figure, len(results.policies))
    return figure
