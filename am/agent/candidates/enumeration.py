"""Which gangs to ask for together: every multiset of kinds where these are few, else a grid of them.

A set of asks is a matrix of counts, a row an ask, a column a kind.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from am.agent import _candidates
from am.agent.candidates.gang_kinds import GangKind, Room
from am.agent.candidates.generation import generate_candidates
from am.agent.candidates.multifit import Ask
from am.agent.model.finish_time import even_sizes
from am.agent.model.views import JobView
from themis.apps import JobShape
from themis.cluster import Level

Counts = NDArray[np.int64]

RATIOS = (1.0, 1.1, 1.2, 1.35, 1.6, 2.0)
"""Steps of the grids that are tried, finest first: a count goes up by one, then by such a factor. 1 is complete."""

_COMPLETE, _ON_GRID, _FEW = 10000, 600, 40
"""Asks of a complete table at most, and of one on a grid; so few are always all tried."""

_BALANCED = 20_000
"""Asks of evenly divided GPUs (`_balanced`), times jobs, at most: of many jobs those in `generate_candidates` tell more."""

_FILLED = 230
"""Asks beside those of a grid that fill a bundle well (`generate_candidates`), at most."""

_FAR_PARTS = (0.01, 0.3, 0.6)
"""Parts of the gangs of one ask that lie at the farther of two levels, where not every number is tried; 0.01: one."""

_AT_ONCE = (1.0, 0.75, 0.5)
"""Parts of the jobs that could run at once and do, where not every number is tried: fewer have larger gangs."""


def enumerate_candidates(
    kinds: Sequence[GangKind],
    most_gangs: int,
    most_gpus: int,
    jobs: Sequence[JobView],
    tables: int = 1,
    more: Callable[[], Sequence[Ask]] = tuple,
    room: Room | None = None,
) -> tuple[Counts, int]:
    """Asks for at most so many gangs and GPUs, the empty one included; so many tables share a grid.

    Complete where that makes no more than `_COMPLETE` rows. Else counts of each kind lie on the finest grid that makes
    no more than `_ON_GRID`. Where kinds are too many for that, GPUs are divided about evenly over a number of gangs,
    and these lie at one level or two (`_balanced`). Either is joined by `more`, and by asks that fill a bundle
    (`generate_candidates`, which looks at the room more closely where it is told).

    Returns:
        The asks, and how many of the complete ones are missing (an upper bound: those beyond `most_gpus` count too).
    """
    most_gpus = min(most_gpus, most_gangs * max((kind.at.gpus for kind in kinds), default=0))
    complete, asks = _on_grids(tuple(kinds), most_gangs, most_gpus, tables)
    if complete is not None:
        return complete, 0
    if asks is None:
        budget = max(1, min(_ON_GRID, _BALANCED // max(1, len(jobs))) // tables)
        rows = _balanced(kinds, most_gangs, most_gpus, jobs, budget)
    else:
        rows = list(map(tuple, asks.tolist()))
    filled = itertools.islice(
        generate_candidates(kinds, most_gangs, most_gpus, jobs, tables, room), max(1, _FILLED // tables)
    )
    asks = _that_may_fit(kinds, _each_once([*rows, *more(), *filled]))
    return asks, _complete([min(kind.most, most_gangs) for kind in kinds], most_gangs) - len(asks)


def _on_grids(
    kinds: tuple[GangKind, ...], most_gangs: int, most_gpus: int, tables: int
) -> tuple[Counts | None, Counts | None]:
    """The complete asks that may fit; without these those on the finest grid; without these neither."""
    limits = [min(kind.most, most_gangs) for kind in kinds]
    sizes = [kind.at.gpus for kind in kinds]
    for ratio in RATIOS:
        budget = max(_FEW, _COMPLETE // max(1, tables - 1)) if ratio == 1.0 else max(1, _ON_GRID // tables)
        asks = _product([_grid(limit, ratio) for limit in limits], sizes, most_gangs, most_gpus, budget)
        if asks is None:
            continue
        complete = ratio == 1.0
        told = _that_may_fit(kinds, asks) if complete else asks
        return (told, None) if complete else (None, told)
    return None, None


def _that_may_fit(kinds: Sequence[GangKind], asks: Counts) -> Counts:
    """Asks without those that surely fit nowhere: a gang takes the place of any that is smaller and may lie farther."""
    takes = [
        [
            kind.at.gpus >= like.at.gpus and kind.unit_gpus % like.unit_gpus == 0 and kind.within <= like.within
            for like in kinds
        ]
        for kind in kinds
    ]
    taken = asks @ np.array(takes, dtype=np.int64).reshape(len(kinds), len(kinds))
    return np.asarray(asks[(taken <= [kind.most for kind in kinds]).all(axis=1)])


def _each_once(asks: Sequence[tuple[int, ...]]) -> Counts:
    return np.array(list(dict.fromkeys(asks)), dtype=np.int64)


def _grid(most: int, ratio: float) -> list[int]:
    """Counts from 0 to `most`: by one, and by the ratio where that is more."""
    counts = [0]
    while counts[-1] < most:
        counts.append(min(most, max(counts[-1] + 1, int(counts[-1] * ratio))))
    return counts


def _product(
    grids: Sequence[Sequence[int]], sizes: Sequence[int], most_gangs: int, most_gpus: int, budget: int
) -> Counts | None:
    """All choices of a count from each grid within the two limits; None where they are more than the budget."""
    if not grids:
        return np.zeros((1, 0), dtype=np.int64)
    ends = np.array(list(itertools.accumulate(map(len, grids))), dtype=np.int64)
    counts = np.array(list(itertools.chain.from_iterable(grids)), dtype=np.int64)
    asks = np.empty((budget, len(grids)), dtype=np.int64)
    many = _candidates.on_grids(counts, ends, np.array(sizes, dtype=np.int64), most_gangs, most_gpus, asks)
    return None if many < 0 else asks[:many].copy()


def _complete(limits: Sequence[int], most_gangs: int) -> int:
    """How many multisets of so many gangs there are at most, each kind up to its limit."""
    ways = [1] + [0] * most_gangs
    for limit in limits:
        sums = [0]
        for count in ways:
            sums.append(sums[-1] + count)
        ways = [sums[gangs + 1] - sums[max(0, gangs - limit)] for gangs in range(most_gangs + 1)]
    return sum(ways)


# ---- too many kinds for a grid --------------------------------------------------------------------------------------


Split = tuple[tuple[int, int, int], ...]
"""GPUs split into gangs as (GPUs, unit, count), smallest first."""


def _balanced(
    kinds: Sequence[GangKind], most_gangs: int, most_gpus: int, jobs: Sequence[JobView], budget: int
) -> list[Ask]:
    """Asks that share a total of GPUs evenly, at one level or two: totals on ever finer grids up to the budget."""
    layout = _Layout(kinds)
    shares = _shares(jobs)
    rows: dict[tuple[int, ...], None] = {(0,) * len(kinds): None}
    done: set[int] = set()
    known: set[Split] = set()
    for gpus in itertools.chain.from_iterable(_grid(most_gpus, ratio) for ratio in (8.0, 4.0, *RATIOS[::-1])):
        if len(rows) >= budget:
            break
        if gpus in done:
            continue
        done.add(gpus)
        for sizes in (_split_by_work(shares, gpus, at_once) for at_once in _AT_ONCE):
            if sizes not in known and _fits(sizes, most_gangs, most_gpus):
                rows |= dict.fromkeys(layout.laid_out(sizes))
            known.add(sizes)
    return list(itertools.islice(rows, budget))


def _fits(sizes: Split, most_gangs: int, most_gpus: int) -> bool:
    gangs = sum([count for _, _, count in sizes])
    return gangs <= most_gangs and sum([size * count for size, _, count in sizes]) <= most_gpus


def _shares(jobs: Sequence[JobView]) -> list[tuple[JobShape, int, float]]:
    """Shapes of jobs, with the number of jobs and the part of all work that is theirs."""
    members: dict[JobShape, list[float]] = {}
    for job in jobs:
        members.setdefault(job.shape, []).append(job.serial_work_s)
    total_s = sum(sum(works_s) for works_s in members.values()) or 1.0
    return [(shape, len(works_s), sum(works_s) / total_s) for shape, works_s in members.items()]


def _split_by_work(shares: Sequence[tuple[JobShape, int, float]], gpus: int, at_once: float) -> Split:
    """GPUs shared among the shapes of jobs by their work; of each, such a part of those that could runs at once."""
    sizes: dict[tuple[int, int], int] = {}
    for shape, members, share in shares:
        unit = shape.gpus_per_task
        units = max(shape.min_tasks, int(gpus * share) // unit)
        gangs = max(1, math.ceil(at_once * min(members, units // shape.min_tasks)))
        for size, count in even_sizes(units * unit, gangs, shape):
            sizes[size, unit] = sizes.get((size, unit), 0) + count
    return tuple((size, unit, count) for (size, unit), count in sorted(sizes.items()))


class _Layout:
    """Lays gangs out at one level, or the smallest of them at a farther one, as counts by kind: by `core/gang_layout.c`."""

    def __init__(self, kinds: Sequence[GangKind]) -> None:
        by_size: dict[tuple[int, int], list[int]] = {}
        for place, kind in enumerate(kinds):
            by_size.setdefault((kind.at.gpus, kind.unit_gpus), []).append(place)
        self._most = [kind.most for kind in kinds]
        self._within = [kind.within for kind in kinds]
        self._arrays = np.array(self._most, dtype=np.int64), np.array(self._within, dtype=np.int64)
        self._places = {
            size: tuple([_kind_within(places, kinds, level) for level in Level]) for size, places in by_size.items()
        }

    def laid_out(self, sizes: Split) -> list[Ask]:
        """Every layout of these gangs for which there is room."""
        gangs = sum([count for _, _, count in sizes])
        aways = tuple(sorted({math.ceil(part * gangs) for part in _FAR_PARTS}))
        return _candidates.lay_apart(*self._arrays, self._places, sizes, aways)


def _kind_within(places: Sequence[int], kinds: Sequence[GangKind], level: Level) -> int:
    """Of the kinds of one size the farthest that lies within a level, or the nearest there is."""
    fitting = [place for place in places if kinds[place].within <= level]
    return fitting[-1] if fitting else places[0]
