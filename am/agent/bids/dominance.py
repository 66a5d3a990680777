"""Dominance pruning: which candidates of a bid are useless, and which of the others are sent if they exceed the cap.

A candidate dominates another one if it is worth as much and fits wherever the other fits: each of its gangs can take
the place of one of the other's gangs, since it is no larger and asks for no tighter level. Example: a gang of 2 GPUs
anywhere dominates a gang of 2 GPUs within a machine of the same value. `core/dominance.c` does the pruning.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from am.agent import _candidates
from am.agent.candidates.gang_kinds import GangKind

Counts = NDArray[np.int64]
Needs = NDArray[np.int16]
Indices = NDArray[np.int64]

SHORTFALLS = (0.0, 0.001, 0.002, 0.005, 0.01, 0.02, 0.03, 0.05, 0.08, 0.12, 0.2, 0.35, 0.6, 1.0)
"""Parts of its gain that a candidate may lose; the least one applies that the cap allows. The last leaves one."""

_MAX_SETS = 200
"""Most threshold sets for which gangs of different sizes are compared."""


class DominanceKey:
    """Maps candidates to needs. A candidate with no larger need than another one fits wherever that one fits.

    By Hall's theorem the gangs of one candidate can take the places of another's exactly if it has no more gangs in
    every set of kinds that holds, with a kind, all harder ones. Such a set has a size threshold for each level.
    Example: with sizes 1 and 2 at one level the sets are {2} and {1, 2}. So two gangs of 1 need (0, 2), one gang of 2
    needs (1, 1): neither fits wherever the other does.

    Gangs of different units are never compared. If there are too many sets, gangs of different sizes are not compared
    either, and a dominated candidate may be sent.
    """

    def __init__(self, kinds: Sequence[GangKind]) -> None:
        columns: list[NDArray[np.bool_]] = []
        for unit in sorted({kind.unit_gpus for kind in kinds}):
            columns += _threshold_sets(kinds, [index for index, kind in enumerate(kinds) if kind.unit_gpus == unit])
        self._harder = np.array(columns, dtype=np.int64).reshape(len(columns), len(kinds))

    def needs(self, candidates: Counts) -> Needs:
        """R x needs of R x K counts: a candidate with no more in any column fits wherever the other one fits."""
        return (candidates @ self._harder.T).astype(np.int16)


def _threshold_sets(kinds: Sequence[GangKind], mine: Sequence[int]) -> list[NDArray[np.bool_]]:
    """Sets of kinds by a size threshold for each level: the looser the level, the larger the threshold."""
    sizes = sorted({kinds[index].at.gpus for index in mine})
    levels = sorted({kinds[index].within for index in mine})
    thresholds = itertools.combinations_with_replacement([*sizes, sizes[-1] + 1], len(levels))
    least = [dict(zip(levels, threshold, strict=True)) for threshold in itertools.islice(thresholds, _MAX_SETS + 1)]
    if len(least) > _MAX_SETS:
        return [
            _column(kinds, [index for index in mine if kinds[index].at.gpus == size and kinds[index].within <= level])
            for size in sizes
            for level in levels
        ]
    sets = {
        tuple(index for index in mine if kinds[index].at.gpus >= threshold[kinds[index].within]) for threshold in least
    }
    return [_column(kinds, members) for members in sorted(sets) if members]


def _column(kinds: Sequence[GangKind], members: Sequence[int]) -> NDArray[np.bool_]:
    column = np.zeros(len(kinds), dtype=bool)
    column[list(members)] = True
    return column


_NONE: Indices = np.zeros(0, dtype=np.int64)


def one_step_variants(kinds: Sequence[GangKind], candidates: Counts) -> tuple[Indices, Indices]:
    """Pairs of candidates of which the second asks for a little less: a gang fewer, smaller, or at a looser level.

    A first sieve for large tables: a candidate that is worth no more than its easier variant is useless.

    Args:
        kinds: K kinds.
        candidates: R x K counts.

    Returns:
        The harder and the easier candidate of each pair; none for tables too large for keys.
    """
    # A variant may have one more gang of a kind than any candidate has: its key must be that of no other.
    weights = [(int(candidates.max(initial=0)) + 2) ** index for index in range(len(kinds))]
    if len(candidates) <= 1 or weights[-1:] > [2**55]:
        return _NONE, _NONE
    easier_than = [just_easier(kinds, index) for index in range(len(kinds))]
    changed = [index for index, easier in enumerate(easier_than) for _ in range(1 + len(easier))]
    changes = [
        other - weights[index]
        for index, easier in enumerate(easier_than)
        for other in (0, *(weights[kind] for kind in easier))
    ]
    pairs = np.empty((2, len(candidates) * len(changed)), dtype=np.int64)
    keys, counts = candidates @ np.array(weights, dtype=np.int64), np.ascontiguousarray(candidates)
    where = np.array(changed, dtype=np.int64), np.array(changes, dtype=np.int64)
    count = _candidates.one_step_variants(keys, counts, *where, pairs[0], pairs[1])
    # Most of the space reserved for pairs stays unused.
    return pairs[0, :count].copy(), pairs[1, :count].copy()


def just_easier(kinds: Sequence[GangKind], index: int) -> list[int]:
    """The kinds that ask for a little less than one: its size at a looser level, a smaller size at its level."""
    hard = kinds[index]
    same_unit = [(other, kind) for other, kind in enumerate(kinds) if kind.unit_gpus == hard.unit_gpus]
    looser = [
        (kind.within, other) for other, kind in same_unit if kind.at.gpus == hard.at.gpus and kind.within > hard.within
    ]
    smaller = [
        (-kind.at.gpus, kind.within, other)
        for other, kind in same_unit
        if kind.at.gpus < hard.at.gpus and kind.within >= hard.within
    ]
    return [min(some)[-1] for some in (looser, smaller) if some]


def thinned(needs: Needs, gains: NDArray[np.float64], gpus: NDArray[np.int64], cap: int) -> list[int]:
    """At most `cap` of some undominated candidates, in their order.

    For every candidate left out there is one that is sent, fits wherever it fits, and gains at least (1 - shortfall) of
    what it gains over the empty bundle. The shortfall is the least of `SHORTFALLS` that the cap allows. The candidates
    that gain most of all with as few GPUs (`_best_by_gpus`) come first: what is best for a well placed bundle is sent,
    whatever must be left out of odd ones.

    Args:
        needs: R x needs, a candidate that dominates another before it; see `DominanceKey`.
        gains: R gains above 0.
        gpus: R totals of GPUs.
        cap: How many may be sent, 1 or more.
    """
    chosen: list[int] | None = None
    low, high = 0, len(SHORTFALLS) - 1
    best = _best_by_gpus(gains, gpus, max(1, cap // 2))
    while low < high:
        middle = (low + high) // 2
        tried = _cover(needs, gains, SHORTFALLS[middle], cap, best)
        low, high = (middle + 1, high) if tried is None else (low, middle)
        chosen = chosen if tried is None else tried
    return sorted(chosen or _cover(needs, gains, SHORTFALLS[-1], cap, best) or best)


def _best_by_gpus(gains: NDArray[np.float64], gpus: NDArray[np.int64], most: int) -> list[int]:
    """The candidates that gain most with as few GPUs; if they are too many, only those a step of gain apart.

    The one that gains most of all is always among them.
    """
    order = np.lexsort((-gains, gpus)).tolist()
    for step in SHORTFALLS:
        best: list[int] = []
        reached = 0.0
        for index in order:
            if (1.0 - step) * gains[index] > reached:
                best.append(index)
                reached = gains[index]
        if len(best) < most:
            break
    top = int(gains.argmax())
    return best if top in best else [*best, top]


def _cover(
    needs: Needs, gains: NDArray[np.float64], shortfall: float, cap: int, first: Sequence[int]
) -> list[int] | None:
    """The first candidates, and those that none kept before replaces. Returns None if they exceed `cap`."""
    enough = (1.0 - shortfall) * gains
    kept = np.empty(len(first) + len(gains), dtype=np.int64)
    kept[: len(first)] = first
    count = _candidates.uncovered(np.ascontiguousarray(needs), gains, enough, len(first), cap, kept)
    found: list[int] = kept[:count].tolist()
    return found if count <= cap else None
