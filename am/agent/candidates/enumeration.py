"""Enumerate candidates: every multiset of kinds of gangs if these are few, else a grid of them.

Candidates are a matrix of counts, R candidates by K kinds. Example: with the kinds (2 GPUs, 1 GPU), at most two gangs
and three GPUs, all candidates are (0, 0), (0, 1), (0, 2), (1, 0) and (1, 1).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from am.agent import _candidates
from am.agent.candidates.gang_kinds import Candidate, GangKind
from am.agent.candidates.gang_layout import GangLayout, Sizes
from am.agent.candidates.generation import generate_candidates
from am.agent.candidates.search_space import PARTS_AT_ONCE, SearchSpace
from am.agent.model.finish_time import even_sizes
from am.agent.model.views import JobView
from themis.apps import JobShape
from themis.sums import sum_in_order

Counts = NDArray[np.int64]

RATIOS = (1.0, 1.1, 1.2, 1.35, 1.6, 2.0)
"""Grids, finest first: a count grows by one, or by this factor if that is more. 1.0 is the complete enumeration."""

_COMPLETE, _ON_GRID, _FEW = 10000, 600, 40
"""Most candidates of a complete table, and of a grid; up to `_FEW` are always enumerated completely."""

_BALANCED = 20_000
"""Most evenly divided candidates (`_balanced`) times jobs: for many jobs `generate_candidates` finds better ones."""

_FAR_PARTS = (0.01, 0.3, 0.6)
"""Parts of a candidate's gangs, rounded up, that are at the looser of two levels. 0.01 is one of at most 100 gangs."""


def enumerate_candidates(space: SearchSpace) -> tuple[Counts, int]:
    """Candidates of a search space, the empty one included.

    All of them if they are at most `_COMPLETE`. Otherwise counts of each kind are on the finest grid with at most
    `_ON_GRID` candidates. If there are too many kinds even for that, GPUs are divided about evenly over a number of
    gangs at one level or two (`_balanced`). Both are joined by `generate_candidates`.

    Returns:
        The candidates, and how many of the complete ones are missing (an upper bound: those beyond `max_gpus` count).
    """
    kinds, max_gangs, tables = space.kinds, space.max_gangs, space.tables
    max_gpus = min(space.max_gpus, max_gangs * max((kind.at.gpus for kind in kinds), default=0))
    complete, candidates = _on_grids(kinds, max_gangs, max_gpus, tables)
    if complete is not None:
        return complete, 0
    if candidates is None:
        budget = max(1, min(_ON_GRID, _BALANCED // max(1, len(space.jobs))) // tables)
        rows = _balanced(kinds, max_gangs, max_gpus, space.jobs, budget)
    else:
        rows = list(map(tuple, candidates.tolist()))
    generated = generate_candidates(replace(space, max_gpus=max_gpus))
    candidates = _that_may_fit(kinds, np.array(list(dict.fromkeys([*rows, *generated])), dtype=np.int64))
    return candidates, _complete([min(kind.most, max_gangs) for kind in kinds], max_gangs) - len(candidates)


def _on_grids(
    kinds: tuple[GangKind, ...], max_gangs: int, max_gpus: int, tables: int
) -> tuple[Counts | None, Counts | None]:
    """The complete candidates that may fit, or else those on the finest grid; None for each that is not available."""
    limits = [min(kind.most, max_gangs) for kind in kinds]
    sizes = [kind.at.gpus for kind in kinds]
    for ratio in RATIOS:
        budget = max(_FEW, _COMPLETE // max(1, tables - 1)) if ratio == 1.0 else max(1, _ON_GRID // tables)
        candidates = _product([_grid(limit, ratio) for limit in limits], sizes, max_gangs, max_gpus, budget)
        if candidates is None:
            continue
        complete = ratio == 1.0
        return (_that_may_fit(kinds, candidates), None) if complete else (None, candidates)
    return None, None


def _that_may_fit(kinds: Sequence[GangKind], candidates: Counts) -> Counts:
    """Candidates without those that provably do not fit: a gang takes the place of every smaller and looser one."""
    takes = [
        [
            kind.at.gpus >= like.at.gpus and kind.unit_gpus % like.unit_gpus == 0 and kind.within <= like.within
            for like in kinds
        ]
        for kind in kinds
    ]
    taken = candidates @ np.array(takes, dtype=np.int64).reshape(len(kinds), len(kinds))
    return np.asarray(candidates[(taken <= [kind.most for kind in kinds]).all(axis=1)])


def _grid(most: int, ratio: float) -> list[int]:
    """Counts from 0 to `most`, growing by one, or by the ratio if that is more."""
    counts = [0]
    while counts[-1] < most:
        counts.append(min(most, max(counts[-1] + 1, int(counts[-1] * ratio))))
    return counts


def _product(
    grids: Sequence[Sequence[int]], sizes: Sequence[int], max_gangs: int, max_gpus: int, budget: int
) -> Counts | None:
    """All choices of a count from each grid within the two limits. Returns None if they exceed the budget."""
    if not grids:
        return np.zeros((1, 0), dtype=np.int64)
    ends = np.array(list(itertools.accumulate(map(len, grids))), dtype=np.int64)
    counts = np.array(list(itertools.chain.from_iterable(grids)), dtype=np.int64)
    candidates = np.empty((budget, len(grids)), dtype=np.int64)
    count = _candidates.on_grids(counts, ends, np.array(sizes, dtype=np.int64), max_gangs, max_gpus, candidates)
    return None if count < 0 else candidates[:count].copy()


def _complete(limits: Sequence[int], max_gangs: int) -> int:
    """The number of multisets of at most `max_gangs` gangs, each kind up to its limit."""
    ways = [1] + [0] * max_gangs
    for limit in limits:
        sums = [0]
        for count in ways:
            sums.append(sums[-1] + count)
        ways = [sums[gangs + 1] - sums[max(0, gangs - limit)] for gangs in range(max_gangs + 1)]
    return sum(ways)


# ---- too many kinds for a grid --------------------------------------------------------------------------------------


def _balanced(
    kinds: Sequence[GangKind], max_gangs: int, max_gpus: int, jobs: Sequence[JobView], budget: int
) -> list[Candidate]:
    """Candidates that share a total of GPUs evenly, at one level or two; totals on ever finer grids."""
    layout = GangLayout(kinds)
    shares = _shares(jobs)
    rows: dict[tuple[int, ...], None] = {(0,) * len(kinds): None}
    done: set[int] = set()
    known: set[Sizes] = set()
    for gpus in itertools.chain.from_iterable(_grid(max_gpus, ratio) for ratio in (8.0, 4.0, *RATIOS[::-1])):
        if len(rows) >= budget:
            break
        if gpus in done:
            continue
        done.add(gpus)
        for sizes in (_split_by_work(shares, gpus, at_once) for at_once in PARTS_AT_ONCE):
            gangs = sum([count for _, _, count in sizes])
            taken_gpus = sum([size * count for size, _, count in sizes])
            if sizes not in known and gangs <= max_gangs and taken_gpus <= max_gpus:
                loose_counts = sorted({math.ceil(part * gangs) for part in _FAR_PARTS})
                rows |= dict.fromkeys(layout.at_two_levels(sizes, loose_counts))
            known.add(sizes)
    return list(itertools.islice(rows, budget))


def _shares(jobs: Sequence[JobView]) -> list[tuple[JobShape, int, float]]:
    """Shapes of jobs, with the number of their jobs and their part of all work."""
    members: dict[JobShape, list[float]] = {}
    for job in jobs:
        members.setdefault(job.shape, []).append(job.serial_work_s)
    total_s = sum_in_order(sum_in_order(works_s) for works_s in members.values()) or 1.0
    return [(shape, len(works_s), sum_in_order(works_s) / total_s) for shape, works_s in members.items()]


def _split_by_work(shares: Sequence[tuple[JobShape, int, float]], gpus: int, at_once: float) -> Sizes:
    """GPUs shared among the shapes of jobs by their work; the part `at_once` of the jobs that could run does run.

    Returns the gangs, smallest first.
    """
    sizes: dict[tuple[int, int], int] = {}
    for shape, members, share in shares:
        unit = shape.gpus_per_task
        units = max(shape.min_tasks, int(gpus * share) // unit)
        gangs = max(1, math.ceil(at_once * min(members, units // shape.min_tasks)))
        for size, count in even_sizes(units * unit, gangs, shape):
            sizes[size, unit] = sizes.get((size, unit), 0) + count
    return tuple((size, unit, count) for (size, unit), count in sorted(sizes.items()))
