"""Local search over candidates: a candidate becomes better by small changes of its gangs, step by step.

A change adds a gang, replaces one by a gang of another kind, splits one in two, or joins two. Each is also tried two
and four times at once. Two searches share these changes:

* `greedy_search` takes the change that ends the jobs earliest, for several parts of the offer. It is quick, and finds
  good candidates for small bundles.
* `target_search` looks for the best candidate for the whole offer. The end of a candidate says little about which
  change leads to an earlier end, so the search aims at a target end, 1 to 1.5 % before the best. It takes the change
  that leaves out least work: `left_out_s`, the time of the jobs that do not end by the target. Example: two candidates
  end at 100 s. By 99 s one leaves out a job of 4 s, the other jobs of 40 s; the first is nearer to the target. Once
  nothing is left out the target moves on. If no change helps, it moves halfway back to the best end. Without this
  search the worst bundle is 3.65 % off the optimum instead of 0.09 %.

They are two functions, since one loop would branch at every step: they differ in what a step minimizes, in when it
accepts a change, and in when they stop. Each has changes and limits of its own too. The greedy search times all its
candidates, which is slow, so it tries only changes among kinds that are placed near (`_near_moves`). It keeps to a part
of the GPUs and of the capacity for each kind (`_ShareLimits`), because a part of an offer has no machines to count on.
The search for a target prices a candidate by one quick bound, so it tries changes among all kinds (`_all_moves`), and
keeps to all that the offered machines can hold (`Limits`).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from am.agent.candidates.gang_kinds import Candidate, GangKind, splits
from am.agent.candidates.list_scheduling import whole_offer_candidates
from am.agent.candidates.multifit import capacity_taken
from am.agent.candidates.search_space import MAX_PACKED_CLOSELY, SearchSpace
from am.agent.model.division_times import PhaseOn, phase_times_s
from themis.cluster import Level
from themis.placement.gang_capacity import GangCapacity

Counts = NDArray[np.int64]
Moves = NDArray[np.int8]
"""Changes of counts, M x K kinds. Small numbers: many kinds have tens of thousands of changes."""

_REPEATS = (1, 2, 4)
"""How many times a step may make one change at once."""

_GREEDY_STEPS, _TARGET_STEPS = 6, 24
"""Steps at most: of the greedy search, which tries all parts in each step, and of the search for a target."""

_PARTS = (1.0, 0.5, 0.25, 0.125)
"""Parts of the offer for which the greedy search improves a candidate; few, since each step times hundreds."""

_MAX_EXCHANGED_GPUS = 12
"""GPUs of gangs that are exchanged for gangs of another size, at most."""

_MAX_WORK = 400_000
"""The search for a target runs up to this number of jobs times squared kinds, by which its changes grow. At 100 jobs on
63 kinds it takes some tenths of a second."""

_MAX_STARTS = 8
"""Starts that compete with the candidate found."""

_FIRST_TARGET, _NEXT_TARGET, _NEAR_ENOUGH = 0.985, 0.99, 0.9995
"""Targets as parts of the best end: the first one, each later one, and the one at which the search stops."""


# ---- greedy ---------------------------------------------------------------------------------------------------------


def greedy_search(space: SearchSpace, starts: Sequence[Candidate]) -> Iterator[Candidate]:
    """The best of some candidates for each part of the offer, and what it becomes in a few greedy steps.

    Candidates that a step leaves behind are yielded too: they may fit where the better one does not. All parts take a
    step together, since timing many candidates takes hardly longer than timing a few. Yields nothing if a bid has
    several tables.
    """
    moves = _near_moves(space.kinds)
    if space.tables > 1 or not len(moves) or not starts:
        return
    limits = _ShareLimits(space)
    gangs = [kind.at for kind in space.kinds]
    counts = np.array(starts, dtype=np.int64)
    tried = {part: limits.within(counts, part) for part in _PARTS}
    best_s = dict.fromkeys(_PARTS, math.inf)
    for _ in range(1 + _GREEDY_STEPS):
        times_s = phase_times_s(space.jobs, gangs, np.concatenate(list(tried.values())), in_pairs=False)
        ends = np.cumsum([len(candidates) for candidates in tried.values()])
        better = {}
        for (part, candidates), ends_s in zip(tried.items(), np.split(times_s, ends[:-1]), strict=True):
            if len(candidates) and ends_s.min() < best_s[part]:
                best_s[part], better[part] = float(ends_s.min()), candidates[ends_s.argmin()]
        if not better:
            return
        yield from [tuple(candidate.tolist()) for candidate in better.values()]
        tried = {part: limits.within(candidate + moves, part) for part, candidate in better.items()}


class _ShareLimits:
    """The limits of candidates for a part of the offer: gangs, GPUs, and capacity by kind."""

    def __init__(self, space: SearchSpace) -> None:
        self._taken = np.array(capacity_taken(space.kinds)).T
        self._capacity = np.array([float(kind.most) for kind in space.kinds])
        self._sizes = np.array([kind.at.gpus for kind in space.kinds])
        self._max_gangs, self._max_gpus = space.max_gangs, space.max_gpus

    def within(self, candidates: Counts, part: float) -> Counts:
        """The candidates that fit into a part of the GPUs and about that part of the capacity for each kind."""
        fits = (candidates >= 0).all(axis=1) & (candidates.sum(axis=1) <= self._max_gangs)
        fits &= candidates @ self._sizes <= part * self._max_gpus
        fits &= (candidates @ self._taken <= np.ceil(part * self._capacity)).all(axis=1)
        return np.asarray(candidates[fits])


def _near_moves(kinds: Sequence[GangKind]) -> Counts:
    """Changes among the kinds that are placed near; none if these all have one size."""
    near = list(_near(kinds))
    if len({kinds[index].at.gpus for index in near}) < 2:
        return np.zeros((0, len(kinds)), dtype=np.int64)
    one = np.eye(len(kinds), dtype=np.int64)
    moves = [one[index] for index in near]
    swaps = [one[left] - one[right] for left, right in itertools.pairwise(near)]
    moves += [*swaps, *(-swap for swap in swaps), *_split_moves(one, [kind.at.gpus for kind in kinds], near)]
    return np.concatenate([repeats * np.array(moves) for repeats in _REPEATS])


def _near(kinds: Sequence[GangKind]) -> Iterator[int]:
    """Kinds within one machine, and the tightest kind of each size that has none."""
    seen: set[tuple[int, int]] = set()
    for index, kind in enumerate(kinds):
        size = kind.at.gpus, kind.unit_gpus
        if kind.within <= Level.MACHINE or size not in seen:
            yield index
        seen.add(size)


# ---- target ---------------------------------------------------------------------------------------------------------


def target_search(space: SearchSpace, starts: Sequence[Candidate]) -> Iterator[Candidate]:
    """Candidates with earlier and earlier ends, found by steps from the best of `starts`.

    The last ones are the best candidate, or one that uses the whole offer if that ends earlier, and the best single
    changes of it. Yields nothing without free capacity, if a bid has several tables, or if `len(kinds)**2 * len(jobs)`
    exceeds `_MAX_WORK`.
    """
    kinds, jobs = space.kinds, space.jobs
    if space.tables > 1 or space.capacity is None or len(kinds) ** 2 * len(jobs) > _MAX_WORK:
        return
    sizes = tuple(kind.at.gpus for kind in kinds)
    moves = _all_moves(sizes, _REPEATS)
    limits = Limits(kinds, space.capacity, space.max_gangs)
    candidates = limits.within(np.array(starts, dtype=np.int64).reshape(-1, len(kinds)))
    if not len(moves) or not len(candidates):
        return
    phase = PhaseOn(jobs, [kind.at for kind in kinds])
    ends_s = phase.times_s(candidates)
    end_s = float(ends_s.min())
    if math.isinf(end_s):
        return
    candidate = best = candidates[ends_s.argmin()]
    target_s, left_out_s = _FIRST_TARGET * end_s, math.inf
    for _ in range(_TARGET_STEPS):
        tried = limits.within(candidate + moves)
        left_out = phase.left_out_s(tried, target_s, left_out_s)
        if not len(tried) or left_out.min() >= left_out_s:
            left_out_s, target_s = math.inf, (target_s + end_s) / 2.0
            if target_s > _NEAR_ENOUGH * end_s:
                break
            continue
        candidate, left_out_s = tried[left_out.argmin()], float(left_out.min())
        if left_out_s:
            continue
        reached_s = float(phase.times_s(candidate[None])[0])
        if reached_s < end_s:
            best, end_s = candidate, reached_s
            yield tuple(candidate.tolist())
        target_s, left_out_s = _NEXT_TARGET * min(target_s, reached_s), math.inf
    near = candidates[ends_s.argsort(kind="stable")[:_MAX_STARTS]]
    whole = np.array(whole_offer_candidates(space), dtype=np.int64).reshape(-1, len(kinds))
    ready = np.concatenate([best[None], near, limits.within(whole)])
    # One more change, with jobs packed in pairs. A second one gains little and takes a fifth of the time of a bid.
    best = ready[phase.times_s(ready, in_pairs=True).argmin()]
    tried = limits.within(np.concatenate([best[None], best + _all_moves(sizes, (1,))]))
    for index in phase.times_s(tried, in_pairs=True).argsort(kind="stable")[:MAX_PACKED_CLOSELY]:
        yield tuple(tried[index].tolist())


class Limits:
    """The limits of candidates for the whole offer: gangs, and the free capacity."""

    def __init__(self, kinds: Sequence[GangKind], capacity: GangCapacity, max_gangs: int) -> None:
        limits = [((1,) * len(kinds), max_gangs), *capacity.limits([kind.request for kind in kinds])]
        # Whole numbers, but a product of floats is faster.
        self._taken = np.array([taken for taken, _ in limits], dtype=np.float64).T
        self._most = np.array([most for _, most in limits], dtype=np.float64)

    def within(self, candidates: Counts) -> Counts:
        """The candidates within these limits."""
        candidates = candidates[(candidates >= 0).all(axis=1)]
        return np.asarray(candidates[(candidates.astype(np.float64) @ self._taken <= self._most).all(axis=1)])


def _all_moves(sizes: tuple[int, ...], repeats: tuple[int, ...]) -> Moves:
    """Distinct changes among all kinds of these sizes in GPUs; none if there is one size only."""
    if len(set(sizes)) < 2:
        return np.zeros((0, len(sizes)), dtype=np.int8)
    one = np.eye(len(sizes), dtype=np.int8)
    indices = range(len(sizes))
    moves = [*one]
    for left, right in itertools.permutations(indices, 2):
        moves.append(one[left] - one[right])
        gpus = math.lcm(sizes[left], sizes[right])
        if gpus <= _MAX_EXCHANGED_GPUS:
            moves.append(gpus // sizes[left] * one[left] - gpus // sizes[right] * one[right])
    stacked = np.stack([*moves, *_split_moves(one, sizes, indices)])
    return np.unique(np.concatenate([count * stacked for count in repeats]), axis=0)


def _split_moves(one: NDArray[np.int8] | Counts, sizes: Sequence[int], indices: Sequence[int]) -> Iterator[Counts]:
    """Changes that split one gang in two, or join two gangs."""
    for whole, left, right in splits(sizes, indices):
        split = one[left] + one[right] - one[whole]
        yield split
        yield -split
