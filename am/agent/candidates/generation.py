"""Asks for apps of many jobs: GPUs dealt to shapes of jobs by their work, gangs laid as near as there is room.

Where not every multiset of gangs can be tried (`divisions`), these are the asks that a bundle of so many GPUs is best
divided into, or nearly: a total of GPUs, how large gangs of elastic jobs are, and how much of the near places is won.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence

import numpy as np

from am.agent import _candidates
from am.agent.candidates.gang_kinds import GangKind, Room
from am.agent.candidates.list_scheduling import Jobs, Sizes, least_tasks, scheduled_by_shape
from am.agent.candidates.local_search import greedy_search, target_search
from am.agent.candidates.multifit import multifit_candidates
from am.agent.model.views import JobView

_END_STEP = 1.1
"""Ends that asks are fitted to go up by such a factor."""

_LEAST_GANGS = (0.0, 0.5, 1.0)
"""Gangs of elastic jobs have at least such a part of the tasks that their job could use."""

_AT_ONCE = (1.0, 0.75, 0.5)
"""Parts of the jobs that run at once where gangs are sized by the work of their jobs: fewer have larger gangs."""

_NEAR = (math.inf, 1.0, 0.6, 0.0)
"""Parts of the places at each level but the farthest that are asked for, by the part of all GPUs asked for: all that
there are, as many as an average bundle has, fewer, none."""

_WHOLE_NEAR = (1.0, 0.0)
"""The same where all GPUs are asked for."""


def generate_candidates(
    kinds: Sequence[GangKind],
    most_gangs: int,
    most_gpus: int,
    jobs: Sequence[JobView],
    tables: int = 1,
    room: Room | None = None,
) -> Iterator[tuple[int, ...]]:
    """Counts by kind; every ask keeps to each kind's `most`, and none is empty.

    First those fitted to an end and what steps make of them, then GPUs dealt out, coarse totals first. Where so many
    tables share the time of a bid the ends are fewer, and no steps are made. Where the room is told the first are those
    aimed at an end in it.
    """
    fitted = list(multifit_candidates(kinds, most_gangs, most_gpus, jobs, _END_STEP**tables))
    if tables == 1:
        stepped = list(greedy_search(kinds, most_gangs, most_gpus, jobs, fitted))
        if room is not None:
            whole = _whole_asks(kinds, most_gpus, jobs)
            yield from target_search(kinds, room, most_gangs, jobs, [*stepped, *fitted], whole)
        yield from stepped
    yield from fitted
    yield from _dealt_asks(kinds, most_gangs, most_gpus, jobs)


def sizes_by_work(jobs: Sequence[JobView], gpus: int) -> list[Sizes]:
    """All of the GPUs dealt to shapes of jobs by their work, for each of `_LEAST_GANGS`; none where no gang fits."""
    dealt = [scheduled_by_shape(jobs, len(jobs), gpus, least) for least in _leasts_of(jobs)]
    # The last of each has all of the GPUs.
    return list(dict.fromkeys(some[-1][1] for some in dealt if some))


def _whole_asks(kinds: Sequence[GangKind], most_gpus: int, jobs: Sequence[JobView]) -> list[tuple[int, ...]]:
    """All of the GPUs dealt to shapes of jobs by their work, gangs laid as near as there is room."""
    layout = _Nearest(kinds)
    return [ask for sizes in sizes_by_work(jobs, most_gpus) for ask in layout.asks(sizes, _WHOLE_NEAR)]


def _dealt_asks(
    kinds: Sequence[GangKind], most_gangs: int, most_gpus: int, jobs: Sequence[JobView]
) -> Iterator[tuple[int, ...]]:
    """GPUs dealt to jobs, gangs laid as near as there is room; coarse totals first."""
    layout = _Nearest(kinds)
    nearest = {(kind.at.gpus, kind.unit_gpus): kind.at.level for kind in reversed(kinds)}
    longest = Jobs(jobs, nearest)
    at_once = dict.fromkeys(min(most_gangs, math.ceil(part * len(jobs))) for part in _AT_ONCE)
    by_total: dict[int, dict[Sizes, None]] = {}
    for gpus, sizes in itertools.chain(
        *(longest.scheduled_by_job(some, most_gpus) for some in at_once),
        *(scheduled_by_shape(jobs, most_gangs, most_gpus, least) for least in _leasts_of(jobs)),
    ):
        by_total.setdefault(gpus, {})[sizes] = None
    for gpus in sorted(by_total, key=_fineness):
        share = gpus / most_gpus
        parts = tuple([min(1.0, share * near) if near else 0.0 for near in _NEAR])
        for sizes in by_total[gpus]:
            yield from dict.fromkeys(layout.asks(sizes, parts))


def _fineness(gpus: int) -> tuple[int, int]:
    """Multiples of large powers of two come first."""
    return -(gpus & -gpus), gpus


def _leasts_of(jobs: Sequence[JobView]) -> list[float]:
    """Those of `_LEAST_GANGS` that differ for these jobs: gangs of few tasks have few smallest sizes."""
    shapes = dict.fromkeys([job.shape for job in jobs])
    leasts: dict[tuple[int, ...], float] = {}
    for least in _LEAST_GANGS:
        leasts.setdefault(tuple([least_tasks(shape, least) for shape in shapes]), least)
    return list(leasts.values())


class _Nearest:
    """Lays gangs out as near as there is room, the largest first: by `core/gang_layout.c`."""

    def __init__(self, kinds: Sequence[GangKind]) -> None:
        self._most = [kind.most for kind in kinds]
        self._within = [int(kind.within) for kind in kinds]
        self._arrays = np.array(self._most, dtype=np.int64), np.array(self._within, dtype=np.int64)
        self._places: dict[tuple[int, int], tuple[int, ...]] = {}
        for place, kind in enumerate(kinds):
            size = kind.at.gpus, kind.unit_gpus
            self._places[size] = (*self._places.get(size, ()), place)

    def asks(self, sizes: Sizes, parts: tuple[float, ...]) -> list[tuple[int, ...]]:
        """The layouts that take no more than some parts of the near places; those that have no room are left out."""
        return _candidates.lay_out(*self._arrays, self._places, sizes, parts)
