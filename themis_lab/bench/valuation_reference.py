"""Decide whether a bid's finish time is within a factor of the smallest one, if the lower bound leaves this open.

The question is about a single finish time. Either `valuation_columns` proves that it is
too early, with times counted ten times as finely as for the bound. Or a diving heuristic finds a packing that ends by
then (Sadykov et al., "Primal heuristics for branch and price", 2019): it fixes one gang of the linear programme after
another with its best jobs, recomputes prices after each, and repeats this with random choices. The caller checks that
the division fits into the bundle, since the programme only has capacity limits.
"""

from __future__ import annotations

import math
import time
from random import Random

import numpy as np
from numpy.typing import NDArray

from themis.values import Value
from themis_lab.bench.valuation_columns import Columns, Limits, Pricing, finding

Times = NDArray[np.float64]

_GRID = 20_000
"""Grid steps per finish time."""

_FULL, _CHANCE = 0.3, 0.35
"""Weights, relative to the programme's use of a gang: how full the gang is, and chance."""

_NEARER = 1.0 - 1e-9
"""Finish times are examined smaller by this factor, so that rounding errors do not count as a difference."""


class Answer(Value, frozen=True):
    """The result for a finish time.

    Attributes:
        is_too_soon: Whether it is proven that not all jobs can finish by then.
        held: Gangs, each with its kind and jobs, on which all jobs finish by then; None if none were found.
    """

    is_too_soon: bool = False
    held: tuple[tuple[int, tuple[int, ...]], ...] | None = None

    def end_s(self, times_s: Times) -> float:
        """When the last job ends on these gangs. Infinite without gangs."""
        if self.held is None:
            return math.inf
        return max(float(sum(times_s[job, kind] for job in jobs)) for kind, jobs in self.held)


def answer(times_s: Times, limits: Limits, end_s: float, most_cpu_s: float) -> Answer:
    """Examine whether all jobs can finish by some time, within a CPU limit.

    Args:
        times_s: J x K seconds of each job on a gang of each kind; infinite if it cannot run there.
        limits: Limits on gangs by kind.
        end_s: The finish time.
        most_cpu_s: CPU seconds after which no further step starts.
    """
    until_cpu_s = time.process_time() + most_cpu_s
    found = finding(times_s, limits, end_s * _NEARER, grid=_GRID, until_cpu_s=until_cpu_s)
    if found.is_too_soon or found.division is None:
        return Answer(found.is_too_soon)
    packing = _Packing(times_s, end_s * _NEARER, found.division)
    while time.process_time() < until_cpu_s:
        held = packing.tried()
        if held is not None:
            return Answer(held=tuple(held))
    return Answer()


class _Packing:
    """Assignments of jobs to the gangs of one division. Columns found for one assignment are reused for the next."""

    def __init__(self, times_s: Times, end_s: float, division: tuple[int, ...]) -> None:
        self._times_s, self._end_s, self._division = times_s, end_s, division
        self._columns = Columns(Pricing(times_s, end_s, _GRID, round_up=True), times_s)
        self._rng = Random(1)

    def tried(self) -> list[tuple[int, tuple[int, ...]]] | None:
        """Gangs with all jobs. Returns None if this try leaves some out."""
        left, waiting = list(self._division), set(range(len(self._times_s)))
        held: list[tuple[int, tuple[int, ...]]] = []
        while waiting:
            self._columns.leave_out([job for job in range(len(self._times_s)) if job not in waiting])
            if self._columns.why_too_few(left) is not None:
                return None
            best = self._likeliest(left, waiting)
            if best is None:
                return None
            held.append(best)
            left[best[0]] -= 1
            waiting -= set(best[1])
        return held

    def _likeliest(self, left: list[int], waiting: set[int]) -> tuple[int, tuple[int, ...]] | None:
        """The best gang with jobs, by its use in the programme, how full it is, and chance."""
        best, most = None, -math.inf
        for often, kind, its in self._columns.used():
            jobs = tuple(job for job in its if job in waiting)
            if not jobs or not left[kind]:
                continue
            full = float(self._times_s[list(jobs), kind].sum()) / self._end_s
            worth = min(often, 1.0) + _FULL * full + _CHANCE * self._rng.random()
            if worth > most:
                best, most = (kind, jobs), worth
        return best
