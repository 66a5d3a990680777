"""Asks fitted to an end: about the fewest GPUs on which an app's jobs all end by then, for ends farther and farther.

Jobs are put on gangs longest first, each where it still ends in time; where none has time left the smallest gang opens
on which the job does: first fit under a bisected end, as MULTIFIT has it for like machines (Coffman, Garey and Johnson,
"An application of bin-packing to multiprocessor scheduling", 1978). The end is only a guess: apps put their jobs on
gangs as `packing` tells, and by that an ask is valued.

`core/multifit.c` does the fit.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from operator import le, mul

import numpy as np

from am.agent import _candidates
from am.agent.candidates.gang_kinds import GangKind
from am.agent.model.finish_time import Line, job_time_s
from am.agent.model.views import JobView

Ask = tuple[int, ...]

_NEAR_ENOUGH = 1.01
"""The earliest end is found to such a factor."""

_MAX_DOUBLINGS, _MAX_ENDS = 12, 80
"""Guesses at most: of an end that is far enough, and of ends after the earliest."""


def capacity_taken(kinds: Sequence[GangKind]) -> list[list[float]]:
    """For each kind a row: of how many of its gangs a gang of each kind takes the room.

    Gangs that take of no kind more than its `most` mostly fit together. As many gangs as there is room for take all
    room for smaller ones: each takes an even part of it, but no more than as many as make it up.
    """
    return [[_part(taker, taken) for taker in kinds] for taken in kinds]


def _part(taker: GangKind, taken: GangKind) -> float:
    if taker.at.gpus < taken.at.gpus or taker.within > taken.within:
        return 0.0
    return min(float(-(-taker.at.gpus // taken.at.gpus)), taken.most / taker.most)


def multifit_candidates(
    kinds: Sequence[GangKind], most_gangs: int, most_gpus: int, jobs: Sequence[JobView], step: float
) -> Iterator[Ask]:
    """Counts by kind: those found on the way to the earliest end, then for ends farther and farther on fewer GPUs.

    Ends go up by the factor `step`, or by what one GPU less makes where that is more.
    """
    fitting = _Fitting(kinds, most_gangs, most_gpus, jobs)
    found = list(_sooner_and_sooner(fitting, most_gpus))
    yield from [ask for _, ask in found]
    if not found:
        return
    end_s, ask = found[-1]
    for _ in range(_MAX_ENDS):
        if sum(ask) == 1:
            return
        gpus = fitting.gpus_of(ask)
        end_s *= max(step, gpus / (gpus - 1))
        fewer = fitting.ask_by(end_s, gpus - 1)
        if fewer is not None:
            yield fewer
            ask = fewer


def _sooner_and_sooner(fitting: _Fitting, gpus: int) -> Iterator[tuple[float, Ask]]:
    """Ends with asks for them, the last about the earliest by which so many GPUs suffice; none where none is found."""
    low_s = high_s = fitting.least_s
    for _ in range(_MAX_DOUBLINGS if math.isfinite(low_s) else 0):
        ask = fitting.ask_by(high_s, gpus)
        if ask is not None:
            yield high_s, ask
            break
        low_s, high_s = high_s, 2.0 * high_s
    else:
        return
    while high_s > _NEAR_ENOUGH * low_s:
        middle_s = math.sqrt(low_s * high_s)
        ask = fitting.ask_by(middle_s, gpus)
        if ask is None:
            low_s = middle_s
        else:
            high_s = middle_s
            yield high_s, ask


class _Fitting:
    """Fits the jobs of one app to ends.

    Attributes:
        least_s: An end before which the jobs cannot be done: by the longest of them, and by all work together.
    """

    def __init__(self, kinds: Sequence[GangKind], most_gangs: int, most_gpus: int, jobs: Sequence[JobView]) -> None:
        self._order = _worth_opening(kinds, jobs)
        self._kinds = [kinds[place] for place in self._order]
        self._all_kinds = len(kinds)
        self._takes = [list(column) for column in zip(*capacity_taken(self._kinds), strict=True)]
        self._sizes = [kind.at.gpus for kind in self._kinds]
        self._most_gangs, self._most_gpus = most_gangs, most_gpus
        times_s = Line(jobs).times_s([kind.at for kind in self._kinds])
        self._arrays = (
            times_s,
            np.array(self._takes, dtype=np.float64),
            np.array(self._sizes, dtype=np.int64),
            np.array([kind.most for kind in self._kinds], dtype=np.int64),
        )
        self._times_s: list[list[float]] = times_s.tolist()
        work_gpu_s = sum(min(map(mul, times_s, self._sizes)) for times_s in self._times_s)
        self.least_s = max(max(map(min, self._times_s)), work_gpu_s / most_gpus)

    def gpus_of(self, ask: Ask) -> int:
        """GPUs that are asked for."""
        return sum(ask[place] * gpus for place, gpus in zip(self._order, self._sizes, strict=True))

    def ask_by(self, end_s: float, gpus: int) -> Ask | None:
        """Gangs on which all jobs end in time; None where these need more GPUs, or more than that part of all room."""
        found = np.empty(len(self._kinds), dtype=np.int64)
        fits = _candidates.ask_by(*self._arrays, self._most_gpus, self._most_gangs, end_s, gpus, found)
        return self._in_place(found.tolist()) if fits else None

    def _in_place(self, found: Sequence[int]) -> Ask:
        """Gangs of the kinds worth opening as counts of all kinds."""
        counts = [0] * self._all_kinds
        for place, count in zip(self._order, found, strict=True):
            counts[place] = count
        return tuple(counts)


def _worth_opening(kinds: Sequence[GangKind], jobs: Sequence[JobView]) -> list[int]:
    """Kinds than which none has fewer GPUs, as much room and every job as fast: of the fewest GPUs first, then near.

    Of gangs on which a job ends in time the first in this order is taken.
    """
    shapes = {(job.shape, job.slowdown): job for job in sorted(jobs, key=lambda job: job.serial_work_s)}
    times_s = dict(zip(kinds, zip(*_times_s(kinds, list(shapes.values())), strict=True), strict=True))

    def beats(kind: GangKind, other: GangKind) -> bool:
        smaller = kind.at.gpus < other.at.gpus and kind.most >= other.most
        return smaller and all(map(le, times_s[kind], times_s[other]))

    worth = [place for place, kind in enumerate(kinds) if not any(beats(other, kind) for other in kinds)]
    return sorted(worth, key=lambda place: (kinds[place].at.gpus, kinds[place].within))


def _times_s(kinds: Sequence[GangKind], jobs: Sequence[JobView]) -> list[list[float]]:
    return [[job_time_s(job, kind.at) for kind in kinds] for job in jobs]
