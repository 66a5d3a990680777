"""Generate candidates for apps of many jobs, if not every multiset of gangs can be enumerated.

Each generator proposes good divisions of some bundle into gangs: `multifit` for an end, `local_search` from the best of
these, `list_scheduling` for a total of GPUs. What remains open is how many GPUs are won, how large the gangs of elastic
jobs are, and how many tight places are among them. All generators take the kinds, the most gangs and GPUs and the jobs,
and yield counts by kind.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence

import numpy as np

from am.agent import _candidates
from am.agent.candidates.gang_kinds import GangKind
from am.agent.candidates.list_scheduling import Jobs, Sizes, least_tasks, scheduled_by_shape
from am.agent.candidates.local_search import greedy_search, target_search
from am.agent.candidates.multifit import multifit_candidates
from am.agent.model.views import JobView
from themis.placement.gang_capacity import GangCapacity

_END_STEP = 1.1
"""The factor between the ends of MULTIFIT candidates."""

_LEAST_GANGS = (0.0, 0.5, 1.0)
"""Gangs of elastic jobs have at least these parts of the tasks that their job could use."""

_AT_ONCE = (1.0, 0.75, 0.5)
"""Parts of the jobs that run at once if gangs are sized by the work of their jobs: fewer jobs have larger gangs."""

_NEAR = (math.inf, 1.0, 0.6, 0.0)
"""Parts of the places at each level but the loosest, in units of the part of all GPUs that is asked for: all places, as
many as an average bundle has, fewer, none."""

_WHOLE_NEAR = (1.0, 0.0)
"""The same if all GPUs are asked for."""


def generate_candidates(
    kinds: Sequence[GangKind],
    most_gangs: int,
    most_gpus: int,
    jobs: Sequence[JobView],
    tables: int = 1,
    capacity: GangCapacity | None = None,
) -> Iterator[tuple[int, ...]]:
    """Counts by kind, none of them empty; every candidate keeps to each kind's `most`.

    Local search comes first, then MULTIFIT, then list scheduling with coarse totals first. If several tables share the
    time of a bid, there are fewer MULTIFIT ends and no local search. Without `capacity` nothing searches for a target.
    """
    fitted = list(multifit_candidates(kinds, most_gangs, most_gpus, jobs, _END_STEP**tables))
    if tables == 1:
        stepped = list(greedy_search(kinds, most_gangs, most_gpus, jobs, fitted))
        if capacity is not None:
            whole = _whole_asks(kinds, most_gpus, jobs)
            yield from target_search(kinds, capacity, most_gangs, jobs, [*stepped, *fitted], whole)
        yield from stepped
    yield from fitted
    yield from _dealt_asks(kinds, most_gangs, most_gpus, jobs)


def sizes_by_work(jobs: Sequence[JobView], gpus: int) -> list[Sizes]:
    """All GPUs shared among shapes of jobs by their work, for each of `_LEAST_GANGS`; empty if no gang fits."""
    dealt = [scheduled_by_shape(jobs, len(jobs), gpus, least) for least in _leasts_of(jobs)]
    # The last of each has all of the GPUs.
    return list(dict.fromkeys(some[-1][1] for some in dealt if some))


def _whole_asks(kinds: Sequence[GangKind], most_gpus: int, jobs: Sequence[JobView]) -> list[tuple[int, ...]]:
    """All GPUs shared among shapes of jobs by their work, gangs at their tightest levels."""
    layout = _Nearest(kinds)
    return [ask for sizes in sizes_by_work(jobs, most_gpus) for ask in layout.asks(sizes, _WHOLE_NEAR)]


def _dealt_asks(
    kinds: Sequence[GangKind], most_gangs: int, most_gpus: int, jobs: Sequence[JobView]
) -> Iterator[tuple[int, ...]]:
    """List-scheduling candidates, gangs at their tightest levels; coarse totals first."""
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
    """The parts of `_LEAST_GANGS` that differ for these jobs: gangs of few tasks have few smallest sizes."""
    shapes = dict.fromkeys([job.shape for job in jobs])
    leasts: dict[tuple[int, ...], float] = {}
    for least in _LEAST_GANGS:
        leasts.setdefault(tuple([least_tasks(shape, least) for shape in shapes]), least)
    return list(leasts.values())


class _Nearest:
    """Places gangs at their tightest levels with free capacity, the largest first (`core/gang_layout.c`)."""

    def __init__(self, kinds: Sequence[GangKind]) -> None:
        self._most = [kind.most for kind in kinds]
        self._within = [int(kind.within) for kind in kinds]
        self._arrays = np.array(self._most, dtype=np.int64), np.array(self._within, dtype=np.int64)
        self._places: dict[tuple[int, int], tuple[int, ...]] = {}
        for place, kind in enumerate(kinds):
            size = kind.at.gpus, kind.unit_gpus
            self._places[size] = (*self._places.get(size, ()), place)

    def asks(self, sizes: Sizes, parts: tuple[float, ...]) -> list[tuple[int, ...]]:
        """The layouts that take at most these parts of the tight places; layouts that do not fit are left out."""
        return _candidates.lay_out(*self._arrays, self._places, sizes, parts)
