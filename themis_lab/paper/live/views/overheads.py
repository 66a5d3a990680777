"""The overheads of NSDI'20, section 8.3.2: bids, auctions, resizes and checkpoints, measured on the testbed."""

from __future__ import annotations

from collections.abc import Sequence

from themis.values import Value
from themis_lab.paper.live.findings import OURS, Line
from themis_lab.paper.live.results import Results

_WHAT = {
    "bid_ms": "one bid (ms)",
    "auction_ms": "one auction (ms)",
    "round_ms": "one round, messages and all (ms)",
    "resize_s": "one resize, from the word to stop to the first step (s)",
    "checkpoint_s": "one checkpoint (s)",
    "first_step_s": "start of a job's tasks to its first step (s)",
    "cut_short_s": "start that was cut short before a first step (s)",
}
_QUANTILES = {"median": "median", "p95": "95th percentile"}
_PAPER = {
    ("bid_ms", "median"): 29.0,
    ("bid_ms", "p95"): 334.0,
    ("auction_ms", "median"): 354.0,
    ("auction_ms", "p95"): 1398.0,
    ("resize_s", "median"): 35.0,
    ("resize_s", "p95"): 50.0,
}
_PAPER_RANGES = {"checkpoint_s": "5 to 10"}
"""Values that the paper gives without quantiles."""


class Overheads(Value, frozen=True, kw_only=True):
    """Costs of decisions and restarts in the run of themis. The simulator takes these times from the run."""

    name: str = "overheads"
    title: str = "system overheads"

    def lines(self, results: Results) -> Sequence[Line]:
        """Median and 95th percentile of each, and the number of starts that were cut short."""
        report = results.reports.get(OURS)
        if report is None:
            return []
        measured = report["overheads"]
        lines = [
            Line(
                what=f"{what}, {name}",
                paper=_paper(key, quantile),
                paper_value=_PAPER.get((key, quantile)),
                testbed=value,
            )
            for key, what in _WHAT.items()
            for quantile, name in _QUANTILES.items()
            if (value := measured.get(key, {}).get(quantile)) is not None
        ]
        counts = {"starts that came to a first step": "first_step_s", "starts cut short": "cut_short_s"}
        return lines + [
            Line(what=what, testbed=measured[key]["count"]) for what, key in counts.items() if key in measured
        ]

    def draw(self, results: Results) -> None:
        """Return None: this view is a table."""


def _paper(key: str, quantile: str) -> str:
    value = _PAPER.get((key, quantile))
    return _PAPER_RANGES.get(key, "") if value is None else f"{value:g}"


OVERHEADS = Overheads()
