"""The findings of a figure or table of the live experiment: lines that compare paper, testbed and simulator."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from themis.values import Value
from themis_lab.paper.live.results import SIMULATOR, TESTBED, Results
from themis_lab.paper.statistics import Row, grouped, median

if TYPE_CHECKING:
    from matplotlib.figure import Figure

OURS = "themis"


class Line(Value, frozen=True, kw_only=True):
    """One quantity.

    Attributes:
        what: The quantity, with its unit.
        paper: The paper's value as printed; empty if it prints none.
        paper_value: The same as a number; None if there is none to divide by.
        testbed: The measured value; None for a comparison of testbed and simulator.
        simulator: The predicted value, the median over the predictions; None if the simulator does not predict it.
        remark: A sentence if they differ, else empty.
        divisible: Whether the ratio of two values is meaningful; that of two ranks is not.
    """

    what: str
    paper: str = ""
    paper_value: float | None = None
    testbed: float | None
    simulator: float | None = None
    remark: str = ""
    divisible: bool = True

    @property
    def over_paper(self) -> float | None:
        """The testbed's value over the paper's."""
        return self._over(self.testbed, self.paper_value)

    @property
    def predicted(self) -> float | None:
        """The simulator's value over the testbed's."""
        return self._over(self.simulator, self.testbed)

    def _over(self, one: float | None, other: float | None) -> float | None:
        return one / other if self.divisible and one is not None and other else None


class View(Protocol):
    """One figure or table of the paper."""

    @property
    def name(self) -> str:
        """Its name in the paper, which also names its files."""
        ...

    @property
    def title(self) -> str:
        """The subject."""
        ...

    def lines(self, results: Results) -> Sequence[Line]:
        """The numbers."""
        ...

    def draw(self, results: Results) -> Figure | None:
        """The figure in the paper's form; None for a table."""
        ...


class Shown(Value, frozen=True, kw_only=True):
    """A view with its content. `figure` is None for a table."""

    view: View
    lines: Sequence[Line]
    figure: Path | None


def by_policy(results: Results, source: str, measure: Callable[[Sequence[Row]], float]) -> dict[str, float]:
    """A measure of each policy: of the one live run, or the median over its predictions."""
    groups = grouped(results.of(source), "policy", "seed")
    found: dict[str, list[float]] = {}
    for (policy, _), rows in groups.items():
        found.setdefault(str(policy), []).append(measure(rows))
    return {policy: median(values) for policy, values in found.items()}


def both(results: Results, measure: Callable[[Sequence[Row]], float]) -> tuple[dict[str, float], dict[str, float]]:
    """A measure of each policy on the testbed, and as predicted."""
    return by_policy(results, TESTBED, measure), by_policy(results, SIMULATOR, measure)


def column(rows: Sequence[Row], name: str) -> list[float]:
    """The finite numbers of a column."""
    return [value for row in rows if math.isfinite(value := float(row[name]))]


def policy_lines(results: Results, what: str, measure: Callable[[Sequence[Row]], float]) -> list[Line]:
    """Return a line per policy. `what` contains `{}` for the policy's name."""
    live, predicted = both(results, measure)
    return [Line(what=what.format(name), testbed=live[name], simulator=predicted.get(name)) for name in live]


def ratios_to_ours(values: dict[str, float]) -> dict[str, float]:
    """Each other policy's value over that of themis. Empty without themis."""
    ours = values.get(OURS)
    return {name: value / ours for name, value in values.items() if name != OURS} if ours else {}
