"""Which gangs to ask for together: every multiset of kinds where these are few, else a grid of them.

A set of asks is a matrix of counts, a row an ask, a column a kind.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from am.agent.finish_time import split_evenly
from am.agent.kinds import GangKind
from am.agent.views import JobView
from themis.apps import JobShape
from themis.cluster import Level

Counts = NDArray[np.int64]

RATIOS = (1.0, 1.1, 1.2, 1.35, 1.6, 2.0)
"""Steps of the grids that are tried, finest first: a count goes up by one, then by such a factor. 1 is complete."""

_FAR_PARTS = (0.01, 0.25, 0.5, 0.75)
"""Parts of the gangs of one ask that lie at the farther of two levels, where not every number is tried; 0.01: one."""

_AT_ONCE = (1.0, 0.75, 0.5, 0.25)
"""Parts of the jobs that could run at once and do, where not every number is tried: fewer have larger gangs."""


def asks_of(
    kinds: Sequence[GangKind], most_gangs: int, most_gpus: int, jobs: Sequence[JobView], budget: int
) -> tuple[Counts, int]:
    """Asks for at most so many gangs and GPUs, the empty one included.

    Complete where that makes no more than `budget` rows. Else counts of each kind lie on the finest grid that does.
    Where kinds are too many for that, GPUs are divided about evenly over a number of gangs, and these lie at one level
    or two (`_balanced`).

    Returns:
        The asks, and how many of the complete ones are missing (an upper bound: those beyond `most_gpus` count too).
    """
    limits = [min(kind.most, most_gangs) for kind in kinds]
    sizes = [kind.at.gpus for kind in kinds]
    for ratio in RATIOS:
        asks = _product([_grid(limit, ratio) for limit in limits], sizes, most_gangs, most_gpus, budget)
        if asks is not None:
            return asks, 0 if ratio == 1.0 else _complete(limits, most_gangs) - len(asks)
    asks = _balanced(kinds, most_gangs, most_gpus, jobs, budget)
    return asks, _complete(limits, most_gangs) - len(asks)


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
    asks = np.zeros((1, 0), dtype=np.int64)
    gangs = gpus = np.zeros(1, dtype=np.int64)
    for grid, size in zip(grids, sizes, strict=True):
        counts = np.array(grid, dtype=np.int64)
        more_gangs = gangs[:, None] + counts
        more_gpus = gpus[:, None] + counts * size
        ask, count = np.nonzero((more_gangs <= most_gangs) & (more_gpus <= most_gpus))
        # Every ask goes on with a count of 0, so their number never falls: too many now are too many at the end.
        if len(ask) > budget:
            return None
        asks = np.column_stack((asks[ask], counts[count]))
        gangs, gpus = more_gangs[ask, count], more_gpus[ask, count]
    return asks


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


Sizes = tuple[tuple[int, int, int], ...]
"""Gangs as (GPUs, unit, count), smallest first."""


def _balanced(
    kinds: Sequence[GangKind], most_gangs: int, most_gpus: int, jobs: Sequence[JobView], budget: int
) -> Counts:
    """Asks that share GPUs evenly, at one level or two: the finest grid of totals within the budget."""
    by_size: dict[tuple[int, int], list[int]] = {}
    for place, kind in enumerate(kinds):
        by_size.setdefault((kind.at.gpus, kind.unit_gpus), []).append(place)
    rows: dict[tuple[int, ...], None] = {}
    for ratio in (*RATIOS[1:], 3.0, 5.0, 9.0):
        rows = {(0,) * len(kinds): None}
        for gpus, at_once in itertools.product(_grid(most_gpus, ratio)[1:], _AT_ONCE):
            sizes = _split_by_work(jobs, gpus, at_once)
            if sum(count for _, _, count in sizes) <= most_gangs and sum(gpus * n for gpus, _, n in sizes) <= most_gpus:
                rows |= dict.fromkeys(_laid_out(sizes, by_size, kinds))
        if len(rows) <= budget:
            break
    return np.array(list(rows)[:budget], dtype=np.int64)


def _split_by_work(jobs: Sequence[JobView], gpus: int, at_once: float) -> Sizes:
    """GPUs shared among the shapes of jobs by their work; of each, such a part of those that could runs at once."""
    work_s: dict[JobShape, float] = {}
    for job in jobs:
        work_s[job.shape] = work_s.get(job.shape, 0.0) + job.serial_work_s
    members = Counter(job.shape for job in jobs)
    total_s = sum(work_s.values()) or 1.0
    sizes: Counter[tuple[int, int]] = Counter()
    for shape, own_s in work_s.items():
        unit = shape.gpus_per_task
        units = max(shape.min_tasks, int(gpus * own_s / total_s) // unit)
        gangs = max(1, math.ceil(at_once * min(members[shape], units // shape.min_tasks)))
        sizes.update((size, unit) for size in split_evenly(units * unit, gangs, shape))
    return tuple((size, unit, count) for (size, unit), count in sorted(sizes.items()))


def _laid_out(
    sizes: Sizes, by_size: Mapping[tuple[int, int], Sequence[int]], kinds: Sequence[GangKind]
) -> Iterator[tuple[int, ...]]:
    """The gangs at one level, or the smallest of them at a farther one, as counts by kind."""
    if any((gpus, unit) not in by_size for gpus, unit, _ in sizes):
        return
    gangs = sum(count for _, _, count in sizes)
    for near, far in itertools.combinations_with_replacement(sorted({kind.within for kind in kinds}), 2):
        for part in _FAR_PARTS if near is not far else (0.0,):
            counts, away = [0] * len(kinds), math.ceil(part * gangs)
            for gpus, unit, count in sizes:
                farther = min(away, count)
                away -= farther
                counts[_kind_within(by_size[gpus, unit], kinds, far)] += farther
                counts[_kind_within(by_size[gpus, unit], kinds, near)] += count - farther
            if all(count <= kind.most for count, kind in zip(counts, kinds, strict=True)):
                yield tuple(counts)


def _kind_within(places: Sequence[int], kinds: Sequence[GangKind], level: Level) -> int:
    """Of the kinds of one size the farthest that lies within a level, or the nearest there is."""
    fitting = [place for place in places if kinds[place].within <= level]
    return fitting[-1] if fitting else places[0]
