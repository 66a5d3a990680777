"""Table 5 of NSDI'20: rho of one long and one short app."""

from __future__ import annotations

from collections.abc import Sequence

from themis.values import Value
from themis_lab.paper.live.findings import Line, both, column
from themis_lab.paper.live.plan import LONG, SHORT
from themis_lab.paper.live.results import Results
from themis_lab.paper.statistics import Row, median
from themis_lab.paper.tab5 import APPS


class LongAndShort(Value, frozen=True, kw_only=True):
    """The two apps within the workload. The paper does not say which of its apps they were."""

    name: str = "tab5"
    title: str = "one long and one short app"

    def lines(self, results: Results) -> Sequence[Line]:
        """Rho of both under every policy. The paper gives it for themis and tiresias."""
        found = []
        for app, name in zip(APPS, (LONG, SHORT), strict=True):
            live, predicted = both(results, lambda rows, name=name: _rho(rows, name))  # type: ignore[misc]
            for policy in live:
                number = app.rho.get(policy)
                found.append(
                    Line(
                        what=f"rho of the {app.name} app, {policy}",
                        paper="" if number is None else f"about {number:g}",
                        paper_value=number,
                        testbed=live[policy],
                        simulator=predicted.get(policy),
                    )
                )
        return found

    def draw(self, results: Results) -> None:
        """Return None: this view is a table."""


def _rho(rows: Sequence[Row], app: str) -> float:
    return median(column([row for row in rows if row["app"] == app], "rho_themis"))


TAB5 = LongAndShort()
