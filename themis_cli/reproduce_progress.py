"""Progress of `themis reproduce` on standard error: on a terminal one line that is redrawn, else a line at times."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from themis_lab.paper.port import Cell, Scale

_QUIET_S, _REDRAWN_S = 30.0, 0.5
_TRUSTED = 0.2
"""Weight of the forecast: it counts as much as measured progress of this share of all work."""
BASIS = {"quick": "as measured on one machine", "paper": "a guess from a run or a part of one of each kind"}
"""The basis of the forecast."""


class ProgressLine:
    """Print the forecast first, then the number of finished runs and the estimated remaining time.

    Args:
        runs: All runs.
        before: The runs that were found in the cache.
        scale: Size of the runs.
        jobs: Number of runs at a time.
    """

    def __init__(self, runs: Sequence[Cell], before: Sequence[Cell], scale: Scale, jobs: int) -> None:
        from rich.console import Console

        console = Console(stderr=True, highlight=False)
        self._terminal = console.is_terminal
        self._status = console.status("starting")
        self._started_s = self._written_s = time.monotonic()
        self._seconds = _seconds(runs, before, jobs)
        self._first = _forecast(len(runs), len(before), self._seconds, scale, jobs)

    def __enter__(self) -> ProgressLine:
        sys.stderr.write(self._first + "\n")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._status.stop()

    def update(self, made: int, wanted: int, share: float) -> None:
        """Update the line: `made` of `wanted` runs are finished, and `share` of the estimated work."""
        now_s = time.monotonic()
        if now_s - self._written_s <= (_REDRAWN_S if self._terminal else _QUIET_S) and made != wanted:
            return
        self._written_s = now_s
        left_s = _left_s(self._seconds, share, now_s - self._started_s)
        text = f"{made} of {wanted} runs; about {length_text(left_s)} left"
        if self._terminal:
            self._status.start()
            self._status.update(text)
        else:
            sys.stderr.write(text + "\n")

    def pause(self) -> None:
        """Clear the line before other output."""
        self._status.stop()


def _seconds(runs: Sequence[Cell], before: Sequence[Cell], jobs: int) -> float:
    """Estimated seconds of the runs that are not cached: `jobs` at a time, but at least the longest run."""
    from themis_lab.paper.forecast import expected_s

    made = {cell.key for cell in before}
    seconds = [expected_s(cell) for cell in runs if cell.key not in made]
    return max(sum(seconds) / jobs, max(seconds, default=0.0))


def _forecast(runs: int, before: int, seconds: float, scale: Scale, jobs: int) -> str:
    there = f", {before} of them made before," if before else ","
    return (
        f"{runs} runs at scale {scale.value}{there} {jobs} at a time: about {length_text(seconds)} "
        f"({BASIS[scale.value]}); the estimate then follows what this machine does"
    )


def _left_s(expected_s: float, share: float, spent_s: float) -> float:
    """Estimated remaining seconds, at this machine's pace so far.

    The forecast's pace counts less as more work is done.
    """
    trusted_s = _TRUSTED * expected_s
    pace = (spent_s + trusted_s) / (share * expected_s + trusted_s) if expected_s else 0.0
    return max(0.0, 1.0 - share) * expected_s * pace


def length_text(seconds: float) -> str:
    """A duration for a reader: seconds, minutes or hours."""
    if seconds < 90.0:
        return f"{seconds:.0f} s"
    if seconds < 5400.0:
        return f"{seconds / 60.0:.0f} min"
    return f"{seconds / 3600.0:.1f} h"
