"""What a figure or table of the experiment found: lines that set paper, testbed and simulator side by side."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from themis_lab.paper.live.results import SIMULATOR, TESTBED, Results
from themis_lab.paper.statistics import Row, grouped, median

if TYPE_CHECKING:
    from matplotlib.figure import Figure

OURS = "themis"


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One quantity.

    Attributes:
        what: The quantity, with its unit.
        paper: The paper's value as it prints it; empty where it prints none.
        paper_value: The same as a number, None where there is none to divide by.
        testbed: As measured; None for what only a comparison of the two tells.
        simulator: As predicted, the median over the predictions; None for what the simulator does not tell.
        remark: A sentence where they differ, else empty.
        divisible: Whether one source's value over another's says anything; that of two ranks does not.
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
        """The testbed's over the paper's."""
        return self._over(self.testbed, self.paper_value)

    @property
    def predicted(self) -> float | None:
        """The simulator's over the testbed's."""
        return self._over(self.simulator, self.testbed)

    def _over(self, one: float | None, other: float | None) -> float | None:
        return one / other if self.divisible and one is not None and other else None


class View(Protocol):
    """One figure or table of the paper's."""

    @property
    def name(self) -> str:
        """As the paper counts it; also the name of its files."""
        ...

    @property
    def title(self) -> str:
        """What it shows."""
        ...

    def lines(self, results: Results) -> Sequence[Line]:
        """The numbers."""
        ...

    def draw(self, results: Results) -> Figure | None:
        """The figure, in the paper's form; None for what is a table only."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """A view with what it shows; `figure` is None for a table only."""

    view: View
    lines: Sequence[Line]
    figure: Path | None


def by_policy(results: Results, source: str, measure: Callable[[Sequence[Row]], float]) -> dict[str, float]:
    """A measure of each policy's run: of the one live run, or the median over its predictions."""
    groups = grouped(results.of(source), "policy", "seed")
    found: dict[str, list[float]] = {}
    for (policy, _), rows in groups.items():
        found.setdefault(str(policy), []).append(measure(rows))
    return {policy: median(values) for policy, values in found.items()}


def both(results: Results, measure: Callable[[Sequence[Row]], float]) -> tuple[dict[str, float], dict[str, float]]:
    """A measure of each policy on the testbed, and as predicted."""
    return by_policy(results, TESTBED, measure), by_policy(results, SIMULATOR, measure)


def column(rows: Sequence[Row], name: str) -> list[float]:
    """A column's numbers, unknown ones left out."""
    return [value for row in rows if math.isfinite(value := float(row[name]))]


def policy_lines(results: Results, what: str, measure: Callable[[Sequence[Row]], float]) -> list[Line]:
    """A line a policy; `what` holds `{}` where its name belongs."""
    live, predicted = both(results, measure)
    return [Line(what=what.format(name), testbed=live[name], simulator=predicted.get(name)) for name in live]


def ratios_to_ours(values: dict[str, float]) -> dict[str, float]:
    """Each other policy's value over that of themis; empty without themis."""
    ours = values.get(OURS)
    return {name: value / ours for name, value in values.items() if name != OURS} if ours else {}
