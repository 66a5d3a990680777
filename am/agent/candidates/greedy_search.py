"""Asks made better step by step: a gang more, one of the next kind in place of one, one split in two, two made one."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from am.agent.candidates.gang_kinds import GangKind, splits
from am.agent.candidates.multifit import Ask, capacity_taken
from am.agent.model.division_times import phase_times_s
from am.agent.model.views import JobView
from themis.cluster import Level

Counts = NDArray[np.int64]

_PARTS = (1.0, 0.5, 0.25, 0.125)
"""Parts of all GPUs for which an ask is made better; few, since steps cost time."""

_STEPS = 6
"""Steps at most; they end sooner where none makes an ask better."""

_AT_ONCE = (1, 2, 4)
"""How many times a step makes one change."""


def greedy_search(
    kinds: Sequence[GangKind], most_gangs: int, most_gpus: int, jobs: Sequence[JobView], starts: Sequence[Ask]
) -> Iterator[Ask]:
    """For some parts of all GPUs the best of these asks, and what it becomes by a few steps, each the best of all.

    What a step leaves behind is told as well: it may fit where the better one does not. All parts take a step together,
    since to time many asks takes hardly longer than to time a few.
    """
    moves = _moves(kinds)
    if not len(moves) or not starts:
        return
    limits = _Limits(kinds, most_gangs, most_gpus)
    gangs = [kind.at for kind in kinds]
    counts = np.array(starts, dtype=np.int64)
    tried = {part: limits.within(counts, part) for part in _PARTS}
    best_s = dict.fromkeys(_PARTS, math.inf)
    for _ in range(1 + _STEPS):
        times_s = phase_times_s(jobs, gangs, np.concatenate(list(tried.values())), in_pairs=False)
        ends = np.cumsum([len(asks) for asks in tried.values()])
        better = {}
        for (part, asks), asks_s in zip(tried.items(), np.split(times_s, ends[:-1]), strict=True):
            if len(asks) and asks_s.min() < best_s[part]:
                best_s[part], better[part] = float(asks_s.min()), asks[asks_s.argmin()]
        if not better:
            return
        yield from [tuple(ask.tolist()) for ask in better.values()]
        tried = {part: limits.within(ask + moves, part) for part, ask in better.items()}


class _Limits:
    """What asks must keep to: gangs, GPUs, and room by kind."""

    def __init__(self, kinds: Sequence[GangKind], most_gangs: int, most_gpus: int) -> None:
        self._taken = np.array(capacity_taken(kinds)).T
        self._room = np.array([float(kind.most) for kind in kinds])
        self._sizes = np.array([kind.at.gpus for kind in kinds])
        self._most_gangs, self._most_gpus = most_gangs, most_gpus

    def within(self, asks: Counts, part: float) -> Counts:
        """Those of the asks that fit into a part of all GPUs and about such a part of the room for each kind."""
        fits = (asks >= 0).all(axis=1) & (asks.sum(axis=1) <= self._most_gangs)
        fits &= asks @ self._sizes <= part * self._most_gpus
        fits &= (asks @ self._taken <= np.ceil(part * self._room)).all(axis=1)
        return np.asarray(asks[fits])


def _moves(kinds: Sequence[GangKind]) -> Counts:
    """Changes of counts; none where all gangs that lie near are of one size."""
    near = list(_near(kinds))
    if len({kinds[place].at.gpus for place in near}) < 2:
        return np.zeros((0, len(kinds)), dtype=np.int64)
    one = np.eye(len(kinds), dtype=np.int64)
    moves = [one[place] for place in near]
    swaps = [one[left] - one[right] for left, right in itertools.pairwise(near)]
    moves += [*swaps, *(-swap for swap in swaps)]
    for whole, left, right in splits([kind.at.gpus for kind in kinds], near):
        split = one[left] + one[right] - one[whole]
        moves += [split, -split]
    return np.concatenate([many * np.array(moves) for many in _AT_ONCE])


def _near(kinds: Sequence[GangKind]) -> Iterator[int]:
    """Kinds that lie on one machine, and of sizes that do not the nearest one."""
    seen: set[tuple[int, int]] = set()
    for place, kind in enumerate(kinds):
        size = kind.at.gpus, kind.unit_gpus
        if kind.within <= Level.MACHINE or size not in seen:
            yield place
        seen.add(size)
