"""The overheads of NSDI'20, section 8.3.2: bids, auctions, resizes, checkpoints, as the testbed measured them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from experiment.findings import OURS, Line
from experiment.results import Results

_WHAT = {
    "bid_ms": ("one bid (ms)", {"median": 29.0, "p95": 334.0}),
    "auction_ms": ("one auction (ms)", {"median": 354.0, "p95": 1398.0}),
    "round_ms": ("one round, messages and all (ms)", {}),
    "resize_s": ("one resize, from the word to stop to the first step (s)", {"median": 35.0, "p95": 50.0}),
    "checkpoint_s": ("one checkpoint (s)", {"median": 5.0, "p95": 10.0}),
    "first_step_s": ("start of a job's tasks to its first step (s)", {}),
}
"""By key of the report: what it is, and the paper's values. It tells 5 to 10 s for a checkpoint, without quantiles."""
_QUANTILES = {"median": "median", "p95": "95th percentile"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Overheads:
    """What deciding and moving cost in the run of themis; the simulator takes these times from the run."""

    name: str = "overheads"
    title: str = "system overheads"

    def lines(self, results: Results) -> Sequence[Line]:
        """Median and 95th percentile of each."""
        report = results.reports.get(OURS)
        if report is None:
            return []
        return [
            Line(
                what=f"{what}, {name}",
                paper=f"{paper[quantile]:g}" if quantile in paper else "",
                paper_value=paper.get(quantile),
                testbed=value,
            )
            for key, (what, paper) in _WHAT.items()
            for quantile, name in _QUANTILES.items()
            if (value := report["overheads"][key][quantile]) is not None
        ]

    def draw(self, results: Results) -> None:
        """Nothing: they are told in words."""


OVERHEADS = Overheads()
