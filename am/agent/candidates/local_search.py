"""Local search over candidates: a candidate becomes better by small changes of its gangs, step by step.

A change adds a gang, replaces one by a gang of another kind, splits one in two, or joins two. Each is also tried two
and four times at once. `local_search` takes the change with the lowest score, as long as scores fall. Two generators
use it, with scores, changes and limits of their own:

* `greedy_search`: the score is the end of the jobs, for several parts of the offer. It finds good candidates for small
  bundles. An end takes long to compute, so only kinds that are placed near are changed (`_near_moves`). A part of an
  offer has no machines to count on, so a candidate keeps to a part of the GPUs, and of the capacity for each kind.
* `target_search` looks for the best candidate for the whole offer, within all that the offered machines can hold. The
  end of a candidate says little about which change leads to an earlier end, so the search aims at a target end, 1 to
  1.5 % before the best. The score is `left_out_s`, the time of the jobs that do not end by the target: one quick bound,
  so changes among all kinds are tried (`_all_moves`). Example: two candidates end at 100 s. By 99 s one leaves out a
  job of 4 s, the other jobs of 40 s; the first is nearer to the target. Once nothing is left out the target moves on.
  If no change helps, it moves halfway back to the best end. Without this search the worst bundle is 3.65 % off the
  optimum instead of 0.09 %.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from am.agent.candidates.gang_kinds import Candidate, GangKind, splits
from am.agent.candidates.list_scheduling import whole_offer_candidates
from am.agent.candidates.multifit import capacity_taken
from am.agent.candidates.search_space import MAX_PACKED_CLOSELY, SearchSpace
from am.agent.model.division_times import PhaseOn
from themis.cluster import Level
from themis.placement.gang_capacity import GangCapacity

Counts = NDArray[np.int64]
Scores = NDArray[np.float64]
Moves = NDArray[np.int8]
"""Changes of counts, M x K kinds. Small numbers: many kinds have tens of thousands of changes."""

_REPEATS = (1, 2, 4)
"""How many times a step may make one change at once."""

_GREEDY_STEPS, _TARGET_STEPS = 6, 24
"""Steps at most: of the greedy search for each part, and of the search for a target."""

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


def local_search(
    candidate: Counts,
    lowest: float,
    score: Callable[[Counts, float], Scores],
    moves: Moves,
    limits: Limits,
    steps: Iterable[int],
) -> Iterator[tuple[Counts, float]]:
    """A candidate, then better and better ones, each with its score. A step makes the change with the lowest score.

    The search ends if no change leads to a score below the last one, `lowest` at first, or if the score is 0.

    Args:
        candidate: The start.
        lowest: The score of the start, or infinite.
        score: Scores of candidates, none below 0. One that reaches the second argument need not be exact.
        moves: The changes. Of equally good ones the first is made.
        limits: Limits of all candidates after the start.
        steps: An item for each step that may be tried. Searches that follow each other may share an iterator.
    """
    yield candidate, lowest
    for _ in steps:
        tried = limits.within(candidate + moves)
        scores = score(tried, lowest)
        if not len(tried) or scores.min() >= lowest:
            return
        candidate, lowest = tried[scores.argmin()], float(scores.min())
        yield candidate, lowest
        if not lowest:
            return


class Limits:
    """Limits of candidates, each on a weighted sum of their gangs: the weight of each kind, and the highest sum."""

    def __init__(self, limits: Sequence[tuple[Sequence[float], float]]) -> None:
        # Often whole numbers, but a product of floats is faster.
        self._weights = np.array([weights for weights, _ in limits], dtype=np.float64).T
        self._most = np.array([most for _, most in limits], dtype=np.float64)

    @classmethod
    def of_offer(cls, kinds: Sequence[GangKind], capacity: GangCapacity, max_gangs: int) -> Limits:
        """The limits for the whole offer: gangs, and the free capacity."""
        return cls([((1,) * len(kinds), max_gangs), *capacity.limits([kind.request for kind in kinds])])

    def allow(self, candidates: Counts) -> NDArray[np.bool_]:
        """Whether the sums of each candidate are within these limits."""
        return np.asarray((candidates.astype(np.float64) @ self._weights <= self._most).all(axis=1))

    def within(self, candidates: Counts) -> Counts:
        """The candidates within these limits, without those that have a negative count."""
        candidates = candidates[(candidates >= 0).all(axis=1)]
        return np.asarray(candidates[self.allow(candidates)])


# ---- greedy ---------------------------------------------------------------------------------------------------------


def greedy_search(space: SearchSpace, starts: Sequence[Candidate]) -> Iterator[Candidate]:
    """The best of some candidates for each part of the offer, and what it becomes in a few greedy steps.

    Candidates that a step leaves behind are yielded too: they may fit where the better one does not. Yields nothing if
    a bid has several tables.
    """
    kinds, moves = space.kinds, _near_moves(space.kinds)
    if space.tables > 1 or not len(moves) or not starts:
        return
    phase = PhaseOn(space.jobs, [kind.at for kind in kinds])
    counts = np.array(starts, dtype=np.int64)
    ends_s = phase.times_s(counts)
    gangs, gpus = (1,) * len(kinds), tuple([kind.at.gpus for kind in kinds])
    taken = capacity_taken(kinds)

    def score(tried: Counts, _lowest: float) -> Scores:
        return phase.times_s(tried)

    def best_of(part: float) -> Iterator[tuple[Counts, float]]:
        capacity = [math.ceil(part * kind.most) for kind in kinds]
        limits = Limits([(gangs, space.max_gangs), (gpus, part * space.max_gpus), *zip(taken, capacity, strict=True)])
        fitting_s = np.where(limits.allow(counts), ends_s, math.inf)
        first = fitting_s.argmin()
        if math.isfinite(fitting_s[first]):
            yield from local_search(counts[first], fitting_s[first], score, moves, limits, range(_GREEDY_STEPS))

    # Of equally good candidates those of the first steps come first, whatever their part.
    for found in itertools.zip_longest(*map(best_of, _PARTS)):
        yield from [tuple(each[0].tolist()) for each in found if each]


def _near_moves(kinds: Sequence[GangKind]) -> Moves:
    """Changes among the kinds that are placed near, each kind replaced only by those next to it."""
    near, sizes = list(_near(kinds)), [kind.at.gpus for kind in kinds]
    pairs = list(itertools.pairwise(near))
    return _repeated(_moves(sizes, near, [*pairs, *((right, left) for left, right in pairs)]), len(kinds), _REPEATS)


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
    limits = Limits.of_offer(kinds, space.capacity, space.max_gangs)
    candidates = limits.within(np.array(starts, dtype=np.int64).reshape(-1, len(kinds)))
    if not len(moves) or not len(candidates):
        return
    phase = PhaseOn(jobs, [kind.at for kind in kinds])
    ends_s = phase.times_s(candidates)
    end_s = float(ends_s.min())
    if math.isinf(end_s):
        return
    candidate = best = candidates[ends_s.argmin()]
    target_s, steps = _FIRST_TARGET * end_s, iter(range(_TARGET_STEPS))
    while target_s < _NEAR_ENOUGH * end_s:
        score = partial(phase.left_out_s, target_s)
        *_, (candidate, left_out_s) = local_search(candidate, math.inf, score, moves, limits, steps)
        if left_out_s:
            target_s = (target_s + end_s) / 2.0
            continue
        reached_s = float(phase.times_s(candidate[None])[0])
        if reached_s < end_s:
            best, end_s = candidate, reached_s
            yield tuple(candidate.tolist())
        target_s = _NEXT_TARGET * min(target_s, reached_s)
    near = candidates[ends_s.argsort(kind="stable")[:_MAX_STARTS]]
    whole = np.array(whole_offer_candidates(space), dtype=np.int64).reshape(-1, len(kinds))
    ready = np.concatenate([best[None], near, limits.within(whole)])
    # One more change, with jobs packed in pairs. A second one gains little and takes a fifth of the time of a bid.
    best = ready[phase.times_s(ready, in_pairs=True).argmin()]
    tried = limits.within(np.concatenate([best[None], best + _all_moves(sizes, (1,))]))
    for index in phase.times_s(tried, in_pairs=True).argsort(kind="stable")[:MAX_PACKED_CLOSELY]:
        yield tuple(tried[index].tolist())


def _all_moves(sizes: Sequence[int], repeats: Sequence[int]) -> Moves:
    """Distinct changes among all kinds of these sizes in GPUs, also a few gangs for as many GPUs in others."""
    one, pairs = np.eye(len(sizes), dtype=np.int8), list(itertools.permutations(range(len(sizes)), 2))
    moves = _moves(sizes, range(len(sizes)), pairs)
    for left, right in pairs if moves else ():
        gpus = math.lcm(sizes[left], sizes[right])
        if gpus <= _MAX_EXCHANGED_GPUS:
            moves.append(gpus // sizes[left] * one[left] - gpus // sizes[right] * one[right])
    return np.unique(_repeated(moves, len(sizes), repeats), axis=0)


def _moves(sizes: Sequence[int], indices: Sequence[int], pairs: Iterable[tuple[int, int]]) -> list[Moves]:
    """A gang more, the first of a pair for the second, a gang split in two, two joined; none if there is one size."""
    if len({sizes[index] for index in indices}) < 2:
        return []
    one = np.eye(len(sizes), dtype=np.int8)
    moves = [*one[list(indices)], *(one[left] - one[right] for left, right in pairs)]
    for whole, left, right in splits(sizes, indices):
        split = one[left] + one[right] - one[whole]
        moves += [split, -split]
    return moves


def _repeated(moves: Sequence[Moves], kinds: int, repeats: Sequence[int]) -> Moves:
    return np.concatenate([count * np.array(moves, dtype=np.int8).reshape(-1, kinds) for count in repeats])
