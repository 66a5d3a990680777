"""MULTIFIT candidates: about the fewest GPUs on which all jobs end by a given time, for later and later ends.

First fit under a bisected end, as MULTIFIT does for identical machines (Coffman, Garey and Johnson, "An application of
bin-packing to multiprocessor scheduling", 1978). Jobs are put on gangs longest first, each on the first gang on which
it still ends in time. If there is none, the smallest gang opens on which it does. Example: jobs of 6, 4 and 2 s, gangs
of one GPU, and an end of 6 s: the first gang takes 6 s, the second 4 + 2 s. The end is only a guide: a candidate is
valued by the packing of its gangs (`packing.makespan`).

`core/multifit.c` does the fit.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from operator import le, mul

import numpy as np

from am.agent import _candidates
from am.agent.candidates.gang_kinds import Candidate, GangKind
from am.agent.candidates.search_space import SearchSpace
from am.agent.model.finish_time import JobTimes, job_time_s
from am.agent.model.views import JobView
from themis.sums import sum_in_order

_NEAR_ENOUGH = 1.01
"""The earliest end is found up to this factor."""

_END_STEP = 1.1
"""The factor between ends."""

_MAX_DOUBLINGS, _MAX_ENDS = 12, 80
"""Most doublings to find an end that suffices, and most ends after the earliest."""


def capacity_taken(kinds: Sequence[GangKind]) -> list[list[float]]:
    """For each kind a row: the number of its gangs whose capacity a gang of each kind takes.

    Gangs that take at most `most` of every kind usually fit together. The most gangs of a kind that fit take all
    capacity for smaller ones. So each takes an even part of it, but at most as many as its GPUs make.
    """
    return [[_part(taker, taken) for taker in kinds] for taken in kinds]


def _part(taker: GangKind, taken: GangKind) -> float:
    if taker.at.gpus < taken.at.gpus or taker.within > taken.within:
        return 0.0
    return min(float(-(-taker.at.gpus // taken.at.gpus)), taken.most / taker.most)


def multifit_candidates(space: SearchSpace, _found: Sequence[Candidate] = ()) -> Iterator[Candidate]:
    """Candidates found on the way to the earliest end, then for later ends on fewer GPUs.

    Ends grow by a factor, or by the effect of one GPU less if that is more. The more tables a bid has, the larger is
    the factor.
    """
    fitting, step = _Fitting(space), _END_STEP**space.tables
    found = list(_sooner_and_sooner(fitting, space.max_gpus))
    yield from [candidate for _, candidate in found]
    if not found:
        return
    end_s, candidate = found[-1]
    for _ in range(_MAX_ENDS):
        if sum(candidate) == 1:
            return
        gpus = fitting.gpus_of(candidate)
        end_s *= max(step, gpus / (gpus - 1))
        fewer = fitting.candidate_by(end_s, gpus - 1)
        if fewer is not None:
            yield fewer
            candidate = fewer


def _sooner_and_sooner(fitting: _Fitting, gpus: int) -> Iterator[tuple[float, Candidate]]:
    """Ends with candidates for them; the last is about the earliest end for which `gpus` GPUs suffice."""
    low_s = high_s = fitting.least_s
    for _ in range(_MAX_DOUBLINGS if math.isfinite(low_s) else 0):
        candidate = fitting.candidate_by(high_s, gpus)
        if candidate is not None:
            yield high_s, candidate
            break
        low_s, high_s = high_s, 2.0 * high_s
    else:
        return
    while high_s > _NEAR_ENOUGH * low_s:
        middle_s = math.sqrt(low_s * high_s)
        candidate = fitting.candidate_by(middle_s, gpus)
        if candidate is None:
            low_s = middle_s
        else:
            high_s = middle_s
            yield high_s, candidate


class _Fitting:
    """Fits the jobs of one app to ends.

    Attributes:
        least_s: A lower bound on the end: by the longest job, and by all work together.
    """

    def __init__(self, space: SearchSpace) -> None:
        kinds, max_gpus, jobs = space.kinds, space.max_gpus, space.jobs
        self._order = _unbeaten_kinds(kinds, jobs)
        self._kinds = [kinds[index] for index in self._order]
        self._all_kinds = len(kinds)
        self._takes = [list(column) for column in zip(*capacity_taken(self._kinds), strict=True)]
        self._sizes = [kind.at.gpus for kind in self._kinds]
        self._max_gangs, self._max_gpus = space.max_gangs, max_gpus
        times_s = JobTimes(jobs).times_s([kind.at for kind in self._kinds])
        self._arrays = (
            times_s,
            np.array(self._takes, dtype=np.float64),
            np.array(self._sizes, dtype=np.int64),
            np.array([kind.most for kind in self._kinds], dtype=np.int64),
        )
        self._times_s: list[list[float]] = times_s.tolist()
        work_gpu_s = sum_in_order(min(map(mul, times_s, self._sizes)) for times_s in self._times_s)
        self.least_s = max(max(map(min, self._times_s)), work_gpu_s / max_gpus)

    def gpus_of(self, candidate: Candidate) -> int:
        """The GPUs of a candidate."""
        return sum(candidate[index] * gpus for index, gpus in zip(self._order, self._sizes, strict=True))

    def candidate_by(self, end_s: float, gpus: int) -> Candidate | None:
        """Gangs on which all jobs end in time. None if they exceed `gpus` GPUs, or that part of the capacity."""
        found = np.empty(len(self._kinds), dtype=np.int64)
        fits = _candidates.fit_by_end(*self._arrays, self._max_gpus, self._max_gangs, end_s, gpus, found)
        if not fits:
            return None
        counts = [0] * self._all_kinds
        for index, count in zip(self._order, found.tolist(), strict=True):
            counts[index] = count
        return tuple(counts)


def _unbeaten_kinds(kinds: Sequence[GangKind], jobs: Sequence[JobView]) -> list[int]:
    """Kinds that no other one beats by fewer GPUs, as much capacity and equal speed; fewest GPUs first, then tightest.

    Of the gangs on which a job ends in time the first in this order opens.
    """
    shapes = {(job.shape, job.slowdown): job for job in sorted(jobs, key=lambda job: job.serial_work_s)}
    times_s = dict(zip(kinds, zip(*_times_s(kinds, list(shapes.values())), strict=True), strict=True))

    def beats(kind: GangKind, other: GangKind) -> bool:
        smaller = kind.at.gpus < other.at.gpus and kind.most >= other.most
        return smaller and all(map(le, times_s[kind], times_s[other]))

    unbeaten = [index for index, kind in enumerate(kinds) if not any(beats(other, kind) for other in kinds)]
    return sorted(unbeaten, key=lambda index: (kinds[index].at.gpus, kinds[index].within))


def _times_s(kinds: Sequence[GangKind], jobs: Sequence[JobView]) -> list[list[float]]:
    return [[job_time_s(job, kind.at) for kind in kinds] for job in jobs]
