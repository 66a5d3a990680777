"""The best of some asks, brought nearer to an end that is aimed at, change by change, in the room that there is.

When an ask ends says little about which change brings it nearer to an earlier end. So an end is aimed at, and asks are
told apart by how much time the jobs take that do not end by then (`packing.left_out_s`). Once an ask leaves none out
the aim is an earlier end; where no change brings it nearer, one between that and the best end reached, from the ask
that was got to: it mostly leaves less out than the best does. At last the best takes the one change that ends it
earliest; the next best changes are told as well, since a bid packs a few asks more closely than any are timed here, and
then another of them may be the best.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from am.agent.candidates.gang_kinds import GangKind, Room, splits
from am.agent.candidates.multifit import Ask
from am.agent.model.division_times import PhaseOn
from am.agent.model.views import JobView

Counts = NDArray[np.int64]
Moves = NDArray[np.int8]
"""Small numbers: of many kinds there are tens of thousands of rows."""

_STEPS = 24
"""Steps at most; they end sooner where the aim comes near to what is reached."""

_AT_ONCE = (1, 2, 4)
"""How many times a step makes one change."""

_MAX_EXCHANGED = 12
"""GPUs of gangs that make room for as many GPUs of others, at most."""

_MAX_WORK = 400_000
"""Jobs times the square of kinds, by which the changes grow, up to which steps are made: 100 jobs on 63 kinds. There
they take some tenths of a second."""

_MAX_STARTS, _TOLD = 8, 7
"""How many of the asks that were there at the start may be the one that takes a change at last; how many are told."""

_FIRST_AIM, _NEXT_AIM, _NEAR_ENOUGH = 0.985, 0.99, 0.9995
"""What is aimed at first, by the end reached; then each time; and where steps end."""


def target_search(
    kinds: Sequence[GangKind],
    room: Room,
    most_gangs: int,
    jobs: Sequence[JobView],
    starts: Sequence[Ask],
    whole: Sequence[Ask] = (),
) -> Iterator[Ask]:
    """Asks that end earlier and earlier, each found by some steps from the best of those to start from.

    The last are the best ask, or one of `whole` where that ends earlier, and what single changes make of it.

    None where kinds and jobs are so many that steps would take too much of the time that a bid has.
    """
    if len(kinds) ** 2 * len(jobs) > _MAX_WORK:
        return
    sizes = tuple(kind.at.gpus for kind in kinds)
    moves = _moves(sizes, _AT_ONCE)
    limits = Limits(kinds, room, most_gangs)
    asks = limits.within(np.array(starts, dtype=np.int64).reshape(-1, len(kinds)))
    if not len(moves) or not len(asks):
        return
    phase = PhaseOn(jobs, [kind.at for kind in kinds])
    ends_s = phase.times_s(asks)
    end_s = float(ends_s.min())
    if math.isinf(end_s):
        return
    ask = best = asks[ends_s.argmin()]
    aim_s, left_out_s = _FIRST_AIM * end_s, math.inf
    for _ in range(_STEPS):
        tried = limits.within(ask + moves)
        left_out = phase.left_out_s(tried, aim_s, left_out_s)
        if not len(tried) or left_out.min() >= left_out_s:
            left_out_s, aim_s = math.inf, (aim_s + end_s) / 2.0
            if aim_s > _NEAR_ENOUGH * end_s:
                break
            continue
        ask, left_out_s = tried[left_out.argmin()], float(left_out.min())
        if left_out_s:
            continue
        reached_s = float(phase.times_s(ask[None])[0])
        if reached_s < end_s:
            best, end_s = ask, reached_s
            yield tuple(ask.tolist())
        aim_s, left_out_s = _NEXT_AIM * min(aim_s, reached_s), math.inf
    near = asks[ends_s.argsort(kind="stable")[:_MAX_STARTS]]
    ready = np.concatenate([best[None], near, limits.within(np.array(whole, dtype=np.int64).reshape(-1, len(kinds)))])
    yield from _polished(phase, limits, _moves(sizes, (1,)), ready)


def _polished(phase: PhaseOn, limits: Limits, moves: Moves, ready: Counts) -> Iterator[Ask]:
    """Of the best of some asks and all that one change makes of it those that end earliest, with jobs packed in pairs.

    More changes make little better, and each takes a fifth of the time of a bid.
    """
    best = ready[phase.times_s(ready, in_pairs=True).argmin()]
    tried = limits.within(np.concatenate([best[None], best + moves]))
    for place in phase.times_s(tried, in_pairs=True).argsort(kind="stable")[:_TOLD]:
        yield tuple(tried[place].tolist())


class Limits:
    """What asks must keep to: gangs, and the room."""

    def __init__(self, kinds: Sequence[GangKind], room: Room, most_gangs: int) -> None:
        limits = [((1,) * len(kinds), most_gangs), *room.limits(kinds)]
        # Whole numbers, but a product of floats is quicker.
        self._taken = np.array([taken for taken, _ in limits], dtype=np.float64).T
        self._most = np.array([most for _, most in limits], dtype=np.float64)

    def within(self, asks: Counts) -> Counts:
        """Those of the asks that keep to them."""
        asks = asks[(asks >= 0).all(axis=1)]
        return np.asarray(asks[(asks.astype(np.float64) @ self._taken <= self._most).all(axis=1)])


def _moves(sizes: tuple[int, ...], at_once: tuple[int, ...]) -> Moves:
    """Changes of counts of kinds of such sizes in GPUs, so many times, each once; none where all are of one size."""
    if len(set(sizes)) < 2:
        return np.zeros((0, len(sizes)), dtype=np.int8)
    one = np.eye(len(sizes), dtype=np.int8)
    places = range(len(sizes))
    moves = [*one]
    for left, right in itertools.permutations(places, 2):
        moves.append(one[left] - one[right])
        gpus = math.lcm(sizes[left], sizes[right])
        if gpus <= _MAX_EXCHANGED:
            moves.append(gpus // sizes[left] * one[left] - gpus // sizes[right] * one[right])
    for whole, left, right in splits(sizes, places):
        split = one[left] + one[right] - one[whole]
        moves += [split, -split]
    stacked = np.stack(moves)
    return np.unique(np.concatenate([many * stacked for many in at_once]), axis=0)
