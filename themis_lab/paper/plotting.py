"""The style of the experiments' figures: one colour per policy, one typeface, helpers for the paper's forms."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.rcsetup import cycler
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from themis_lab.paper.statistics import Summary, cdf

INK = "#2b2b2b"
GRID = "#d9d9d9"

COLOURS: Mapping[str, str] = {
    "themis": "#c0392b",
    "gandiva": "#2e86ab",
    "tiresias": "#e08e1b",
    "optimus": "#4c9f70",
    "slaq": "#8e6bbf",
    "srtf": "#7f8c8d",
    "srsf": "#2bb3b1",
    "drf": "#9c6644",
    "worst_rho_first": "#e377a8",
    "fair_finish": "#1d3557",
}
"""One colour per policy in every figure. `colour_of` assigns colours to other names."""

_OTHERS = ("#4e79a7", "#f28e2b", "#59a14f", "#e15759", "#9c6bd3", "#2bb3b1", "#d4a72c", "#ef7fb0")

_DASHES = (
    "-",
    (0, (5, 1.2)),
    (0, (1, 1)),
    (0, (6, 1.2, 1, 1.2)),
    (0, (2.5, 1)),
    (0, (10, 2)),
    (0, (4, 1, 1, 1, 1, 1)),
    (0, (1, 2.2)),
    (0, (7, 1, 2.5, 1)),
    (0, (12, 1, 1, 1)),
)
"""Of the lines of a panel in their order, so that they differ by more than their colour."""

# Matplotlib's types name every key, so a plain dictionary of texts does not fit them.
_STYLE: Any = {
    "font.family": "sans-serif",
    "font.size": 9.0,
    "text.color": INK,
    "axes.edgecolor": GRID,
    "axes.labelcolor": INK,
    "axes.titlesize": 10.0,
    "axes.titleweight": "bold",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.prop_cycle": cycler("linestyle", _DASHES),
    "xtick.color": INK,
    "ytick.color": INK,
    "grid.color": GRID,
    "grid.linewidth": 0.6,
    "hatch.linewidth": 0.6,
    "legend.frameon": False,
    "legend.fontsize": 8.0,
    "legend.handlelength": 3.4,
    "savefig.dpi": 150.0,
}

PANEL_WIDTH, HEIGHT = 4.8, 3.2

PAPER = "the paper"
"""Legend entry of points that the paper prints."""


@contextmanager
def house_style() -> Iterator[None]:
    """Within this context all figures are drawn and written in one style."""
    with mpl.rc_context(_STYLE):
        yield


def new_figure(
    panels: int = 1,
    *,
    width: float = 0.0,
    height: float = HEIGHT,
    sharex: bool = False,
    sharey: bool = False,
    widths: Sequence[float] | None = None,
) -> Figure:
    """Return a figure with panels side by side (`figure.axes`). Call it within `house_style`.

    Args:
        panels: Number of panels.
        width: In inches; 0 for the default width for this number of panels.
        height: In inches.
        sharex: Whether the panels share the horizontal scale.
        sharey: Whether the panels share the vertical scale.
        widths: Relative widths of the panels; equal if None.
    """
    figure = Figure(figsize=(width or PANEL_WIDTH * panels, height), layout="constrained")
    figure.subplots(1, panels, sharex=sharex, sharey=sharey, width_ratios=widths)
    return figure


def colour_of(name: str, place: int = 0) -> str:
    """A policy's colour; for any other name the colour of its position."""
    return COLOURS.get(name, _OTHERS[place % len(_OTHERS)])


def cdf_lines(axes: Axes, series: Mapping[str, Sequence[float]], xlabel: str, *, log: bool = False) -> None:
    """Draw the share of values up to x as a step function per series. Themis is drawn on top and thicker.

    Args:
        axes: Where to draw.
        series: Values by name; a policy's name determines the colour.
        xlabel: Label of the values.
        log: A logarithmic axis of values.
    """
    for place, (name, values) in enumerate(series.items()):
        if not values:
            continue
        xs, shares = cdf(values)
        axes.step(
            [xs[0], *xs],
            [0.0, *shares],
            where="post",
            label=name,
            color=colour_of(name, place),
            **_weight(name),
        )
    axes.set(xlabel=xlabel, ylabel="share of apps", ylim=(0.0, 1.02))
    if log:
        axes.set_xscale("log")
        plain_log_axis(axes, "x")
    axes.grid(visible=True)


def grouped_bars(
    axes: Axes,
    groups: Sequence[str],
    series: Mapping[str, Sequence[Summary]],
    *,
    colours: Mapping[str, str] | None = None,
    labels: str = "",
) -> None:
    """Draw bars side by side in each group, with whiskers from the smallest to the largest over seeds.

    Args:
        axes: Where to draw.
        groups: Names under the groups.
        series: By name, one summary per group; a policy's name determines the colour.
        colours: Colours by series, for other names.
        labels: A format such as `.2f` for numbers above the bars; empty for none.
    """
    width = 0.8 / max(1, len(series))
    for place, (name, values) in enumerate(series.items()):
        at = [group + (place - (len(series) - 1) / 2) * width for group in range(len(values))]
        colour = (colours or {}).get(name) or colour_of(name, place)
        heights = [value.median for value in values]
        axes.bar(at, heights, width * 0.92, label=name, color=colour)
        if any(value.runs > 1 for value in values):
            axes.errorbar(at, heights, yerr=_whiskers(values), fmt="none", ecolor=INK, elinewidth=0.8, capsize=1.5)
        if labels:
            for x, value in zip(at, values, strict=True):
                axes.annotate(f"{value.median:{labels}}", (x, value.most), (0, 2), **_ABOVE)
    axes.set_xticks(range(len(groups)), groups)
    axes.tick_params(axis="x", length=0)
    axes.grid(axis="y")


def lines(
    axes: Axes,
    xs: Sequence[float],
    series: Mapping[str, Sequence[Summary]],
    xlabel: str,
    ylabel: str,
    *,
    apart: float = 0.0,
) -> None:
    """Draw a line per series through the medians, with a light band from the smallest to the largest over seeds.

    Args:
        axes: Where to draw.
        xs: Positions of the values.
        series: By name, one summary per position; a summary of no runs draws nothing.
        xlabel: Label of the positions.
        ylabel: Label of the values.
        apart: Distance along x between series that would hide each other's bands. They get whiskers instead of bands.
    """
    for place, (name, values) in enumerate(series.items()):
        colour = colour_of(name, place)
        shift = (place - (len(series) - 1) / 2) * apart
        there = [(x + shift, value) for x, value in zip(xs, values, strict=True) if value.runs]
        at, values = [x for x, _ in there], [value for _, value in there]
        axes.plot(
            at,
            [value.median for value in values],
            marker="o",
            label=name,
            color=colour,
            markersize=3.5,
            **_weight(name),
        )
        if not any(value.runs > 1 for value in values):
            continue
        low, high = [value.least for value in values], [value.most for value in values]
        if apart:
            axes.vlines(at, low, high, color=colour, linewidth=0.9)
        else:
            axes.fill_between(at, low, high, color=colour, alpha=0.12, linewidth=0)
    axes.set(xlabel=xlabel, ylabel=ylabel)
    axes.grid(visible=True)


def fair_line(axes: Axes, *, vertical: bool = False) -> None:
    """Draw a dashed line at rho 1. Above or right of it, an app is worse off than with its fair share."""
    (axes.axvline if vertical else axes.axhline)(1.0, color=INK, linewidth=0.9, linestyle="--")


def plain_log_axis(axes: Axes, which: str) -> None:
    """Label a logarithmic axis by 1, 2, 5 and their powers of ten; a long axis by powers of ten only."""
    axis = axes.xaxis if which == "x" else axes.yaxis
    least, most = sorted(axes.get_xlim() if which == "x" else axes.get_ylim())
    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if most < _LONG * least else (1.0,)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_formatter(NullFormatter())


_LONG = 2000.0


def legend_below(figure: Figure, columns: int = 5, axes: Axes | None = None) -> None:
    """Draw one legend for all panels below them: that of `axes`, by default the first panel.

    The paper's points come last.
    """
    handles, names = (axes or figure.axes[0]).get_legend_handles_labels()
    order = sorted(range(len(names)), key=lambda place: names[place] == PAPER)
    handles, names = [handles[place] for place in order], [names[place] for place in order]
    figure.legend(handles, names, loc="outside lower center", ncols=min(columns, max(1, len(names))))


def _whiskers(values: Sequence[Summary]) -> list[list[float]]:
    return [[value.median - value.least for value in values], [value.most - value.median for value in values]]


def _weight(name: str) -> dict[str, Any]:
    return {"linewidth": 2.2, "zorder": 3.0} if name == "themis" else {"linewidth": 1.3}


_ABOVE: Any = {"textcoords": "offset points", "ha": "center", "va": "bottom", "fontsize": 7}
