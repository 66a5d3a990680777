"""Figure 13 of NSDI'20: placement scores by policy."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.figure import Figure

from themis.values import Value
from themis_lab.paper.live.findings import OURS, Line, both, column, policy_lines
from themis_lab.paper.live.results import Results
from themis_lab.paper.live.views.panels import cdf_panels
from themis_lab.paper.statistics import Row, mean
from themis_lab.simulator.metrics import share_over

WHOLE = 0.99


class Placement(Value, frozen=True, kw_only=True):
    """An app's score is the mean of 1/S over the GPU time of its running jobs; 1 is as fast as in one slot."""

    name: str = "fig13"
    title: str = "placement scores across schedulers"

    def lines(self, results: Results) -> Sequence[Line]:
        """Mean scores, the rank of themis, and the share of apps that lose almost nothing."""
        return [
            *policy_lines(results, "mean score, {}", _mean_score),
            *_rank(results),
            *policy_lines(results, f"share of apps with a score over {WHOLE}, {{}}", _whole),
        ]

    def draw(self, results: Results) -> Figure:
        """Draw CDFs of the score; larger is better."""
        return cdf_panels(results, "placement_score", "placement score")


def _mean_score(rows: Sequence[Row]) -> float:
    return mean(column(rows, "placement_score"))


def _whole(rows: Sequence[Row]) -> float:
    return share_over(column(rows, "placement_score"), WHOLE)


def _rank(results: Results) -> list[Line]:
    live, predicted = both(results, _mean_score)
    if OURS not in live or len(live) < 2:
        return []
    ranks = [1.0 + sum(value > values[OURS] for value in values.values()) for values in (live, predicted)]
    order = ", ".join(sorted(live, key=lambda name: -live[name]))
    # The paper gives an order for workload 2 only; in workload 1 almost all scores are 1.
    paper, number = ("1", 1.0) if results.workload == "w2" else ("", None)
    what = f"rank of {OURS} by mean score, of {len(live)}"
    remark = f"best first: {order}."
    return [
        Line(
            what=what,
            paper=paper,
            paper_value=number,
            testbed=ranks[0],
            simulator=ranks[1],
            remark=remark,
            divisible=False,
        ),
    ]


FIG13 = Placement()
