"""Prove that an app's jobs cannot finish by some time on a bundle, with whole gangs and whole jobs.

A column is a gang of some kind with jobs that end on it in time, one after the other. For whole gangs that fit together
(`Limits`) a linear programme asks whether columns, taken in fractions, hold every job: the bound of Gilmore and Gomory
("A linear programming approach to the cutting-stock problem", 1961), columns made as prices ask for them. Prices of
jobs that show that some gangs are too few (Farley, "A note on bounding a class of linear programming problems", 1990)
are a condition on any gangs: what is worth most on each of them must come to what all jobs are worth. So an integer
programme over the numbers of gangs looks for others, until it finds that there are none (Benders, "Partitioning
procedures for solving mixed-variables programming problems", 1962). What is rounded makes it only more cautious.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from rm_plugin.solvers.highs_package import highspy
from themis.values import Value

Times = NDArray[np.float64]
Limits = Sequence[tuple[Sequence[float], float]]
"""Limits of the form: a weighted sum of gang counts is at most a capacity."""

GRID = 2000
"""Grid steps per finish time; times are rounded down. So more fits than in reality, and proofs stay valid."""

_MAX_DIVISIONS, _MAX_TURNS = 300, 300
_TOLERANCE = 1e-6
_NO_ROWS: NDArray[np.int32] = np.array([], dtype=np.int32)


class Finding(Value, frozen=True):
    """Whether a finish time is proven too early.

    Otherwise the number of gangs of each kind that may suffice, if known.
    """

    is_too_soon: bool
    division: tuple[int, ...] | None = None


def is_too_soon(times_s: Times, limits: Limits, end_s: float) -> bool:
    """Whether it is proven that not all jobs can finish by then. Also False if the proof would take too long."""
    return finding(times_s, limits, end_s).is_too_soon


def finding(
    times_s: Times, limits: Limits, end_s: float, *, grid: int = GRID, until_cpu_s: float = math.inf
) -> Finding:
    """Examine a finish time.

    Args:
        times_s: J x K seconds of each job on a gang of each kind; infinite if it cannot run there.
        limits: Limits on gangs by kind.
        end_s: The finish time.
        grid: Grid steps per finish time: more steps take longer and prove more.
        until_cpu_s: CPU time of the process after which no further gangs are examined.
    """
    if (times_s.min(axis=1) > end_s).any():
        return Finding(True)
    gangs, columns = _Gangs(times_s.shape, limits), Columns(Pricing(times_s, end_s, grid), times_s)
    before: tuple[int, ...] = ()
    for _ in range(_MAX_DIVISIONS):
        division = gangs.likeliest()
        if division is None:
            return Finding(gangs.are_ruled_out)
        if division == before or time.process_time() > until_cpu_s:
            break
        why_not = columns.why_too_few(division)
        if why_not is None:
            return Finding(False, division)
        gangs.rule_out(*why_not)
        before = division
    return Finding(False)


class _Gangs:
    """Sets of whole gangs that fit together and are not ruled out yet."""

    def __init__(self, shape: tuple[int, ...], limits: Limits) -> None:
        jobs, self._kinds = shape
        self.are_ruled_out = False
        self._model = _quiet()
        self._model.setOptionValue("mip_rel_gap", 1e-3)
        most = np.array([float(jobs)] * self._kinds + [1.5])
        self._model.addVars(self._kinds + 1, np.zeros(self._kinds + 1), most)
        for kind in range(self._kinds):
            self._model.changeColIntegrality(kind, highspy.HighsVarType.kInteger)
        self._model.changeColCost(self._kinds, 1.0)
        self._model.changeObjectiveSense(highspy.ObjSense.kMaximize)
        for uses, room in limits:
            self._add(-math.inf, float(room), dict(enumerate(uses)))

    def rule_out(self, worth: Times, needed: float) -> None:
        """Add a constraint: gangs can suffice only if their total value is at least `needed`."""
        self._add(0.0, math.inf, {kind: each / needed for kind, each in enumerate(worth)} | {self._kinds: -1.0})

    def likeliest(self) -> tuple[int, ...] | None:
        """Gangs that suffice by a wide margin. Returns None if none are found.

        `are_ruled_out` says whether it is then proven that there are none.
        """
        self._model.run()
        if not _is_solved(self._model):
            return None
        if self._model.getInfo().mip_dual_bound < 1.0 - _TOLERANCE:
            self.are_ruled_out = True
            return None
        counts = np.rint(self._model.getSolution().col_value[: self._kinds]).astype(int)
        return tuple(counts.tolist())

    def _add(self, low: float, high: float, terms: dict[int, float]) -> None:
        used = {column: factor for column, factor in terms.items() if factor}
        places = np.array(list(used), dtype=np.int32)
        self._model.addRow(low, high, len(used), places, np.array(list(used.values())))


class Columns:
    """The linear programme over the known columns, with a penalty for uncovered jobs and given numbers of gangs."""

    def __init__(self, pricing: Pricing, times_s: Times) -> None:
        self._pricing = pricing
        self._jobs, self._kinds = times_s.shape
        self._model = _quiet()
        self._held: list[tuple[int, tuple[int, ...]]] = []
        for _ in range(self._jobs):
            self._model.addRow(1.0, math.inf, 0, _NO_ROWS, np.array([]))
        for _ in range(self._kinds):
            self._model.addRow(-math.inf, 0.0, 0, _NO_ROWS, np.array([]))
        for job, time_s in enumerate(times_s.min(axis=1).tolist()):
            self._add(time_s, [job])
        for kind, jobs in pricing.first():
            self._add_held(kind, jobs)

    def why_too_few(self, division: Sequence[int]) -> tuple[Times, float] | None:
        """Prices that prove too few gangs: the largest value of a gang of each kind, and the value of all jobs.

        Returns None if the gangs may suffice.
        """
        for kind, count in enumerate(division):
            self._model.changeRowBounds(self._jobs + kind, -math.inf, float(count))
        for _ in range(_MAX_TURNS):
            self._model.run()
            if not _is_solved(self._model):
                return None
            prices = np.array(self._model.getSolution().row_dual)
            worth, costs = np.maximum(prices[: self._jobs], 0.0), np.maximum(-prices[self._jobs :], 0.0)
            needed = float(worth.sum())
            if self._model.getInfo().objective_function_value <= _TOLERANCE * needed or not needed:
                return None
            found = self._pricing.best(worth)
            values = np.array([value for value, _ in found])
            better = [(kind, jobs) for kind, (value, jobs) in enumerate(found) if value > costs[kind] + _TOLERANCE]
            for kind, jobs in better:
                self._add_held(kind, jobs)
            if values @ np.array(division) < (1.0 - _TOLERANCE) * needed:
                return values, needed
            if not better:
                return None
        return None

    def leave_out(self, jobs: Sequence[int]) -> None:
        """Require only the other jobs from now on."""
        gone = set(jobs)
        for job in range(self._jobs):
            self._model.changeRowBounds(job, float(job not in gone), math.inf)

    def used(self) -> list[tuple[float, int, tuple[int, ...]]]:
        """The last solution: the positive counts, each with the kind of gang and its jobs."""
        often = np.array(self._model.getSolution().col_value)[self._jobs :]
        return [(float(often[place]), *self._held[place]) for place in np.flatnonzero(often > _TOLERANCE).tolist()]

    def _add_held(self, kind: int, jobs: Sequence[int]) -> None:
        self._held.append((kind, tuple(jobs)))
        self._add(0.0, [*jobs, self._jobs + kind])

    def _add(self, cost: float, rows: Sequence[int]) -> None:
        places = np.array(rows, dtype=np.int32)
        self._model.addCol(cost, 0.0, math.inf, len(rows), places, np.ones(len(rows)))


class Pricing:
    """Column generation: the most valuable jobs that finish in time on one gang of a kind, a knapsack of times."""

    def __init__(self, times_s: Times, end_s: float, grid: int = GRID, *, round_up: bool = False) -> None:
        self._grid = grid
        with np.errstate(invalid="ignore"):
            parts = (np.ceil if round_up else np.floor)(times_s * (grid / end_s))
        self._parts = np.where(times_s <= end_s, np.minimum(parts, grid), grid + 1).astype(np.int64)

    def first(self) -> list[tuple[int, list[int]]]:
        """Every job alone, on each kind of gang on which it finishes in time."""
        return [(kind, [job]) for job, kind in np.argwhere(self._parts <= self._grid).tolist()]

    def best(self, worth: Times) -> list[tuple[float, list[int]]]:
        """For each kind, the largest total value of jobs, and which jobs."""
        return [self._knapsack(self._parts[:, kind], worth) for kind in range(self._parts.shape[1])]

    def _knapsack(self, parts: NDArray[np.int64], worth: Times) -> tuple[float, list[int]]:
        jobs = [job for job in np.flatnonzero(parts <= self._grid).tolist() if worth[job] > 0.0]
        value = np.zeros(self._grid + 1)
        taken = np.zeros((len(jobs), self._grid + 1), dtype=bool)
        for place, job in enumerate(jobs):
            size = int(parts[job])
            with_it = value[: self._grid + 1 - size] + worth[job]
            taken[place, size:] = with_it > value[size:]
            value[size:] = np.maximum(value[size:], with_it)
        chosen, left = [], self._grid
        for place in range(len(jobs) - 1, -1, -1):
            if taken[place, left]:
                chosen.append(jobs[place])
                left -= int(parts[jobs[place]])
        return float(value[self._grid]), chosen


def _is_solved(model: highspy.Highs) -> bool:
    """Whether the model's optimum is valid: after an error its bounds are zeros."""
    return bool(model.getModelStatus() == highspy.HighsModelStatus.kOptimal and model.getInfo().valid)


def _quiet() -> highspy.Highs:
    model = highspy.Highs()  # type: ignore[no-untyped-call]
    model.setOptionValue("output_flag", False)
    model.setOptionValue("threads", 1)
    return model
