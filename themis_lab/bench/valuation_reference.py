"""Whether what a bid tells is within so much of the least time: settled both ways where the bound leaves it open.

Asked is a single end, what is told less so much. Either it is proven to be too soon (`valuation_columns`, with times
counted ten times as finely as for the bound), or jobs are put on gangs so that all end by then: gangs of the linear
programme, one after the other with the jobs that it likes best there, prices made anew after each, with some chance,
again and again (a diving heuristic: Sadykov et al., "Primal heuristics for branch and price", 2019). That a division
with all its jobs fits into the bundle is for the caller to check: the programme knows limits of room only.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from random import Random

import numpy as np
from numpy.typing import NDArray

from themis_lab.bench.valuation_columns import Columns, Limits, Pricing, finding

Times = NDArray[np.float64]

_GRID = 20_000
"""Parts of the end in which times are counted."""

_FULL, _CHANCE = 0.3, 0.35
"""How much it counts that jobs fill a gang, and chance, where the programme uses all of a gang so by 1."""

_NEARER = 1.0 - 1e-9
"""Ends are asked for by such a factor sooner, so that what is within by the last bit is not told to be farther."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What was found out of an end.

    Attributes:
        is_too_soon: It is proven that not all jobs can end by then.
        held: Gangs, each by its kind and its jobs, on which all do; None where that was not found.
    """

    is_too_soon: bool = False
    held: tuple[tuple[int, tuple[int, ...]], ...] | None = None

    def end_s(self, times_s: Times) -> float:
        """When the last job ends on these gangs; infinite where there are none."""
        if self.held is None:
            return math.inf
        return max(float(sum(times_s[job, kind] for job in jobs)) for kind, jobs in self.held)


def answer(times_s: Times, limits: Limits, end_s: float, most_cpu_s: float) -> Answer:
    """Whether all jobs can end by some time, as far as it is found out.

    Args:
        times_s: J x K seconds of each job on a gang of each kind, infinite where it cannot run.
        limits: Room for gangs by kind.
        end_s: The end.
        most_cpu_s: Seconds of CPU time after which nothing further is begun.
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
    """Ways to put jobs on the gangs of one division; what the programme learns in one it knows in the next."""

    def __init__(self, times_s: Times, end_s: float, division: tuple[int, ...]) -> None:
        self._times_s, self._end_s, self._division = times_s, end_s, division
        self._columns = Columns(Pricing(times_s, end_s, _GRID, round_up=True), times_s)
        self._rng = Random(1)

    def tried(self) -> list[tuple[int, tuple[int, ...]]] | None:
        """Gangs with jobs that hold all; None where this time some are left."""
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
        """A gang with jobs, by how much the programme uses it, how full it is, and chance."""
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
