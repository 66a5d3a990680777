"""Experiments that make their own runs, one after the other: interface, rows, and lines with a band of acceptance."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from themis_lab.paper.port import Comparison, Findings, Scale, Shown
from themis_lab.paper.statistics import Row, Summary, summary


class OwnRuns(Shown, Protocol):
    """One figure or table of the evaluation."""

    def run(self, scale: Scale, seeds: int) -> Findings:
        """Make all runs and evaluate them. Equal arguments give equal findings, except for measured times."""
        ...


def row(panel: str, series: str, group: str | float, seed: int, value: float) -> Row:
    """A row of an experiment's CSV."""
    return {"panel": panel, "series": series, "group": group, "seed": seed, "value": value}


def values(rows: Sequence[Row], panel: str, series: str, group: str | float) -> list[float]:
    """The values of one point over seeds."""
    wanted = (panel, series, group)
    return [float(each["value"]) for each in rows if (each["panel"], each["series"], each["group"]) == wanted]


def point(rows: Sequence[Row], panel: str, series: str, group: str | float) -> Summary:
    """One point over seeds."""
    return summary(values(rows, panel, series, group))


def panel_of(rows: Sequence[Row], panel: str) -> tuple[list[str | float], dict[str, list[Summary]]]:
    """The groups of a panel, and of every series a summary per group, in the order of the rows."""
    inside = [each for each in rows if each["panel"] == panel]
    groups = list(dict.fromkeys(each["group"] for each in inside))
    series = dict.fromkeys(str(each["series"]) for each in inside)
    return groups, {name: [point(inside, panel, name, group) for group in groups] for name in series}


def line(
    what: str,
    value: Summary,
    *,
    paper: str = "",
    number: float | None = None,
    band: tuple[float, float] | None = None,
    why: str = "",
) -> Comparison:
    """A line of the comparison.

    Args:
        what: The quantity.
        value: Ours, over seeds.
        paper: The paper's value as printed.
        number: The same as a number.
        band: Where our median is accepted; None reports only.
        why: Why it differs from the paper. It becomes the remark, after a warning if the median is outside the band, or
            the value of some seed.
    """
    outside = ""
    if band is not None and not (band[0] <= value.least and value.most <= band[1]):
        whose = "" if not band[0] <= value.median <= band[1] else "the median is within, but some seeds are "
        outside = f"{whose}outside the band {band[0]:g} to {band[1]:g}. "
    return Comparison(
        what=what,
        paper=paper,
        paper_value=number,
        ours=value.median,
        spread=value.spread if value.runs > 1 else None,
        remark=(outside + why).strip(),
    )
