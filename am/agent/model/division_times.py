"""T(G) of many divisions at once: `finish_time` with arrays.

Later phases and the packing of a phase are the same code. Only `finish_time` treats a single job, and identical jobs,
without arrays, which is faster. `tests/unit/am/agent/model/test_division_times.py` checks that all times
are bit-identical.

A division is gangs of given sizes for an app's jobs. Here each one is a row of counts over a list of gangs. Example:
over the gangs (1 GPU, 2 GPUs) the row (3, 1) is a division into three gangs of 1 and one gang of 2. The times of jobs
on gangs are computed once for all divisions.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

import numpy as np
from numpy.typing import NDArray

from am.agent.model.finish_time import JobTimes, gang_order, later_phases_time_s, merged
from am.agent.model.views import AppView, ClusterView, GangAt, JobView
from am.agent.packing.makespan import end_times_s, left_out_s
from themis.cluster import Level

Counts = NDArray[np.int64]
Seconds = NDArray[np.float64]
Indices = NDArray[np.intp]

CERTAIN = 1.0 - 1e-9
"""A bound proves something only beyond this factor: two ways to compute one time may differ by rounding."""

_PACKED_TOGETHER = 16
"""Divisions that are packed together while the earliest ones are searched."""


def finish_times_s(
    app: AppView, gangs: Sequence[GangAt], counts: Counts, cluster: ClusterView, *, closely: bool = False
) -> Seconds:
    """`finish_time_s` of every division, in seconds.

    Args:
        app: The app.
        gangs: G gangs, each one once.
        counts: D x G, how many of each gang a division has.
        cluster: The cluster.
        closely: As for `makespan.end_times_s`; `finish_time_s` does not.

    Returns:
        D times, infinite where a division never ends.
    """
    now_s = phase_times_s(app.jobs, gangs, counts, closely=closely)
    if not app.later_phases or not len(now_s):
        return now_s
    gpus = counts @ np.array([gang.gpus for gang in gangs], dtype=np.int64)
    spread = np.array([gang.level if gang.gpus > 1 else Level.SLOT for gang in gangs], dtype=np.int64)
    at_least = np.where(counts > 0, spread, int(Level.SLOT)).max(axis=1, initial=int(Level.SLOT))
    keys, index = np.unique(gpus * len(Level) + at_least, return_inverse=True)
    pairs = [divmod(key, len(Level)) for key in keys.tolist()]
    later_s = [later_phases_time_s(app, held, cluster, Level(level)) for held, level in pairs]
    return np.asarray(now_s + np.array(later_s)[index])


def phase_times_s(
    jobs: Sequence[JobView], gangs: Sequence[GangAt], counts: Counts, *, closely: bool = False
) -> Seconds:
    """`phase_time_s` of every division, in seconds; arguments as for `finish_times_s` and `makespan.end_times_s`."""
    if not jobs:
        return np.zeros(len(counts))
    if not counts.any():
        return np.full(len(counts), inf)
    alone_s, divisions = _by_kind(jobs, gangs, counts)
    return end_times_s(alone_s, divisions, closely=closely)


def earliest(jobs: Sequence[JobView], gangs: Sequence[GangAt], counts: Counts, most: int) -> list[int]:
    """The divisions with the earliest ends by `phase_times_s`, at most `most`; ties: the first one.

    Divisions that provably end later than `most` others are not packed.

    Args:
        jobs: At least one.
        gangs: As for `finish_times_s`.
        counts: As for `finish_times_s`, with at least one gang in all.
        most: The number of divisions, at least one.
    """
    alone_s, divisions = _by_kind(jobs, gangs, counts)
    divisions, index = _distinct(divisions)
    bounds_s = _lower_bounds_s(alone_s, divisions)
    order = np.argsort(bounds_s, kind="stable")
    ends_s = np.full(len(divisions), inf)
    for begin in range(0, len(order), _PACKED_TOGETHER):
        latest_s = np.partition(ends_s, most - 1)[most - 1] if most <= begin else inf
        some = order[begin : begin + _PACKED_TOGETHER]
        some = some[bounds_s[some] * CERTAIN <= latest_s]
        if not len(some):
            break
        ends_s[some] = end_times_s(alone_s, divisions[some])
    found: list[int] = np.argsort(ends_s[index], kind="stable")[:most].tolist()
    return found


def _lower_bounds_s(alone_s: Seconds, divisions: Counts) -> Seconds:
    """A lower bound on the end of each division, in seconds, from sums alone.

    A kind of gang has the speed of the first job on it as its weight. A gang does at most its weight of work a second,
    and every job needs at least its least weighted time. Nor does the first job end sooner than on its fastest kind.
    """
    able = np.isfinite(alone_s)
    weights = np.where(able[0], 1.0 / alone_s[0], 0.0)
    needed = np.where(able, np.where(able, alone_s, 0.0) * weights, inf).min(axis=1).sum()
    work_per_s = divisions @ weights
    unknown_s = np.full(len(work_per_s), inf if needed else 0.0)
    together_s = np.divide(needed, work_per_s, out=unknown_s, where=work_per_s > 0.0)
    first_s = np.where(divisions > 0, alone_s[0], inf).min(axis=1)
    return np.asarray(np.maximum(together_s, first_s))


def _by_kind(jobs: Sequence[JobView], gangs: Sequence[GangAt], counts: Counts) -> tuple[Seconds, Counts]:
    """Times of jobs alone on each kind of gang, and the divisions by kind, without kinds that no division has."""
    used = np.flatnonzero(counts.any(axis=0)).tolist()
    order = sorted(used, key=lambda index: gang_order(gangs[index]))
    alone_s, firsts = merged(JobTimes(jobs).times_s([gangs[index] for index in order]))
    return alone_s, np.add.reduceat(counts[:, order], firsts, axis=1)


class PhaseOn:
    """The jobs of a phase on fixed kinds of gangs, for one set of divisions after another."""

    def __init__(self, jobs: Sequence[JobView], gangs: Sequence[GangAt]) -> None:
        self._order = sorted(range(len(gangs)), key=lambda index: gang_order(gangs[index]))
        self._alone_s, self._firsts = merged(JobTimes(jobs).times_s([gangs[index] for index in self._order]))

    def times_s(self, counts: Counts, *, in_pairs: bool = False) -> Seconds:
        """`phase_times_s` of divisions."""
        return end_times_s(self._alone_s, self._merged(counts), in_pairs=in_pairs)

    def left_out_s(self, end_s: float, counts: Counts, most_s: float) -> Seconds:
        """`packing.left_out_s` of divisions."""
        return left_out_s(self._alone_s, self._merged(counts), end_s, most_s)

    def _merged(self, counts: Counts) -> Counts:
        return np.asarray(np.add.reduceat(counts[:, self._order], self._firsts, axis=1))


# ---- one phase ------------------------------------------------------------------------------------------------------


def _distinct(counts: Counts) -> tuple[Counts, Indices]:
    """The distinct rows, and the index of each row among them."""
    bases = counts.max(axis=0).astype(object) + 1
    if np.prod(bases) >= 2**62:
        divisions, index = np.unique(counts, axis=0, return_inverse=True)
        return divisions, index.ravel()
    weights = np.cumprod([1, *bases[:-1]], dtype=np.int64)
    _, first, index = np.unique(counts @ weights, return_index=True, return_inverse=True)
    return counts[first], index
