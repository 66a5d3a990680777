"""Proof that an app's jobs cannot end by some time on a bundle: a linear programme over what one gang can do by then.

A column is a gang of some kind with jobs that end on it in time, one after the other. Every job must be in one; the
gangs must have room (`Limits`). Columns may be taken in fractions, so what cannot be done so cannot be done at all:
the bound of Gilmore and Gomory ("A linear programming approach to the cutting-stock problem", 1961), for gangs of
several kinds. Columns are made as prices ask for them; the proof is the bound that prices give (Farley, "A note on
bounding a class of linear programming problems", 1990), so it does not rest on the programme being solved to the end.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import highspy
import numpy as np
from numpy.typing import NDArray

Times = NDArray[np.float64]
Limits = Sequence[tuple[Sequence[float], float]]
"""Rows of «so much of each kind is no more than so much»."""

_GRID = 2000
"""Parts of the end in which times are counted, rounded down: more fits than really does, so proofs stay proofs."""

_MOST_TURNS = 150
_TOLERANCE = 1e-6


def is_too_soon(times_s: Times, limits: Limits, end_s: float) -> bool:
    """True when it is proven that not all jobs can end by then; False when not, or when it would take too long.

    Args:
        times_s: J x K seconds of each job on a gang of each kind, infinite where it cannot run.
        limits: Room for gangs by kind.
        end_s: The end.
    """
    if (times_s.min(axis=1) > end_s).any():
        return True
    pricing = _Pricing(times_s, end_s)
    master = _Master(len(times_s), limits)
    for kind, jobs in pricing.first():
        master.add(kind, jobs)
    for _ in range(_MOST_TURNS):
        needed, worth, costs = master.solve()
        if needed <= 1.0 - _TOLERANCE:
            return False
        found = pricing.best(worth)
        factor = min(cost / value for cost, (value, _) in zip(costs, found, strict=True) if value > _TOLERANCE)
        if factor * worth.sum() > 1.0 + _TOLERANCE:
            return True
        better = [(kind, jobs) for kind, (value, jobs) in enumerate(found) if value > costs[kind] + _TOLERANCE]
        if not better:
            return False
        for kind, jobs in better:
            master.add(kind, jobs)
    return False


class _Master:
    """The programme over the columns known so far: the least part of all room that covers every job."""

    def __init__(self, jobs: int, limits: Limits) -> None:
        self._jobs = jobs
        self._uses = np.array([uses for uses, most in limits if most > 0.0])
        most = np.array([most for _, most in limits if most > 0.0])
        self._model = highspy.Highs()  # type: ignore[no-untyped-call]
        self._model.setOptionValue("output_flag", False)
        self._model.setOptionValue("threads", 1)
        none: NDArray[np.int32] = np.array([], dtype=np.int32)
        for _ in range(jobs):
            self._model.addRow(1.0, math.inf, 0, none, np.array([]))
        for _ in most:
            self._model.addRow(-math.inf, 0.0, 0, none, np.array([]))
        rows = np.arange(jobs, jobs + len(most), dtype=np.int32)
        self._model.addCol(1.0, 0.0, math.inf, len(rows), rows, -most)

    def add(self, kind: int, jobs: Sequence[int]) -> None:
        """Add a column: a gang of a kind with these jobs."""
        limits = np.flatnonzero(self._uses[:, kind])
        rows = np.concatenate((np.array(jobs), self._jobs + limits)).astype(np.int32)
        values = np.concatenate((np.ones(len(jobs)), self._uses[limits, kind]))
        self._model.addCol(0.0, 0.0, math.inf, len(rows), rows, values)

    def solve(self) -> tuple[float, Times, Times]:
        """The part of all room that is needed, what each job is worth, and what a gang of each kind costs."""
        self._model.run()
        duals = np.array(self._model.getSolution().row_dual)
        worth = np.maximum(duals[: self._jobs], 0.0)
        costs = np.maximum(-duals[self._jobs :], 0.0) @ self._uses
        return float(self._model.getInfo().objective_function_value), worth, costs


class _Pricing:
    """The jobs worth most that end in time on one gang, by kind: a knapsack of times."""

    def __init__(self, times_s: Times, end_s: float) -> None:
        with np.errstate(invalid="ignore"):
            parts = np.floor(times_s * (_GRID / end_s))
        self._parts = np.where(times_s <= end_s, np.minimum(parts, _GRID), _GRID + 1).astype(np.int64)

    def first(self) -> list[tuple[int, list[int]]]:
        """Every job alone, on each kind of gang on which it ends in time."""
        return [(kind, [job]) for job, kind in np.argwhere(self._parts <= _GRID).tolist()]

    def best(self, worth: Times) -> list[tuple[float, list[int]]]:
        """For each kind what the best jobs are worth together, and which they are."""
        return [self._knapsack(self._parts[:, kind], worth) for kind in range(self._parts.shape[1])]

    def _knapsack(self, parts: NDArray[np.int64], worth: Times) -> tuple[float, list[int]]:
        jobs = [job for job in np.flatnonzero(parts <= _GRID).tolist() if worth[job] > 0.0]
        value = np.zeros(_GRID + 1)
        taken = np.zeros((len(jobs), _GRID + 1), dtype=bool)
        for place, job in enumerate(jobs):
            size = int(parts[job])
            with_it = value[: _GRID + 1 - size] + worth[job]
            taken[place, size:] = with_it > value[size:]
            value[size:] = np.maximum(value[size:], with_it)
        chosen, left = [], _GRID
        for place in range(len(jobs) - 1, -1, -1):
            if taken[place, left]:
                chosen.append(jobs[place])
                left -= int(parts[jobs[place]])
        return float(value[_GRID]), chosen
