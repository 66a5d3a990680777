"""Which asks of a bid are worth sending: none that another makes useless, and no more than a cap.

An ask makes another useless when it is worth as much, and fits wherever the other fits: each of its gangs can take the
place of one of the other's, being no larger and asking for no nearer a place.
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
Places = NDArray[np.int64]

SHORTFALLS = (0.0, 0.001, 0.002, 0.005, 0.01, 0.02, 0.03, 0.05, 0.08, 0.12, 0.2, 0.35, 0.6, 1.0)
"""Parts of its gain that an ask may lose to be left out, the least first that the cap allows. The last leaves one."""

_MAX_STAIRS = 200


class DominanceKey:
    """What asks of some kinds of gangs need, such that needing no more means: fits wherever the other does.

    By Hall's theorem the gangs of one ask can take the places of another's exactly when, for every set of kinds that
    holds with a kind all harder ones, it has no more gangs in the set. Such sets are stairs over sizes and levels.
    Gangs of different units are never compared, and where stairs are too many neither are those of different sizes:
    then an ask may be sent that another makes useless.
    """

    def __init__(self, kinds: Sequence[GangKind]) -> None:
        columns: list[NDArray[np.bool_]] = []
        for unit in sorted({kind.unit_gpus for kind in kinds}):
            columns += _stairs(kinds, [place for place, kind in enumerate(kinds) if kind.unit_gpus == unit])
        self._harder = np.array(columns, dtype=np.int64).reshape(len(columns), len(kinds))

    def needs(self, asks: Counts) -> Needs:
        """R x needs of R x K counts: an ask that has no more in any column fits wherever the other fits."""
        return (asks @ self._harder.T).astype(np.int16)


def _stairs(kinds: Sequence[GangKind], mine: Sequence[int]) -> list[NDArray[np.bool_]]:
    """Sets of kinds that are at least so large, the farther the larger: a threshold of size for each level."""
    sizes = sorted({kinds[place].at.gpus for place in mine})
    levels = sorted({kinds[place].within for place in mine})
    stairs = itertools.combinations_with_replacement([*sizes, sizes[-1] + 1], len(levels))
    least = [dict(zip(levels, stair, strict=True)) for stair in itertools.islice(stairs, _MAX_STAIRS + 1)]
    if len(least) > _MAX_STAIRS:
        return [
            _column(kinds, [p for p in mine if kinds[p].at.gpus == size and kinds[p].within <= level])
            for size in sizes
            for level in levels
        ]
    sets = {tuple(p for p in mine if kinds[p].at.gpus >= stair[kinds[p].within]) for stair in least}
    return [_column(kinds, members) for members in sorted(sets) if members]


def _column(kinds: Sequence[GangKind], members: Sequence[int]) -> NDArray[np.bool_]:
    column = np.zeros(len(kinds), dtype=bool)
    column[list(members)] = True
    return column


_NONE: Places = np.zeros(0, dtype=np.int64)


def neighbours(kinds: Sequence[GangKind], asks: Counts) -> tuple[Places, Places]:
    """Pairs of candidates of which the second asks for a little less: a gang fewer, smaller, or at a looser level.

    A first sieve for large tables: a candidate that is worth no more than its easier neighbour is useless.

    Args:
        kinds: K kinds.
        asks: R x K counts.

    Returns:
        The harder and the easier candidate of each pair; none for tables too large for keys.
    """
    # A neighbour may have one more gang of a kind than any candidate has: its key must be that of no other.
    weights = [(int(asks.max(initial=0)) + 2) ** place for place in range(len(kinds))]
    if len(asks) <= 1 or weights[-1:] > [2**55]:
        return _NONE, _NONE
    easier_than = [just_easier(kinds, place) for place in range(len(kinds))]
    places = [place for place, easier in enumerate(easier_than) for _ in range(1 + len(easier))]
    changes = [
        other - weights[place]
        for place, easier in enumerate(easier_than)
        for other in (0, *(weights[kind] for kind in easier))
    ]
    pairs = np.empty((2, len(asks) * len(places)), dtype=np.int64)
    keys, counts = asks @ np.array(weights, dtype=np.int64), np.ascontiguousarray(asks)
    where = np.array(places, dtype=np.int64), np.array(changes, dtype=np.int64)
    many = _candidates.next_to(keys, counts, *where, pairs[0], pairs[1])
    # Most of the space reserved for pairs stays unused.
    return pairs[0, :many].copy(), pairs[1, :many].copy()


def just_easier(kinds: Sequence[GangKind], place: int) -> list[int]:
    """The kinds that ask for a little less than one: of its size and farther, of its level and smaller."""
    hard = kinds[place]
    alike = [(other, kind) for other, kind in enumerate(kinds) if kind.unit_gpus == hard.unit_gpus]
    farther = [
        (kind.within, other) for other, kind in alike if kind.at.gpus == hard.at.gpus and kind.within > hard.within
    ]
    smaller = [
        (-kind.at.gpus, kind.within, other)
        for other, kind in alike
        if kind.at.gpus < hard.at.gpus and kind.within >= hard.within
    ]
    return [min(some)[-1] for some in (farther, smaller) if some]


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
    """The asks than which none with as few GPUs gains more; where they are too many only every so much of a gain.

    The one that gains most of all is always among them.
    """
    order = np.lexsort((-gains, gpus)).tolist()
    for step in SHORTFALLS:
        best: list[int] = []
        reached = 0.0
        for place in order:
            if (1.0 - step) * gains[place] > reached:
                best.append(place)
                reached = gains[place]
        if len(best) < most:
            break
    top = int(gains.argmax())
    return best if top in best else [*best, top]


def _cover(
    needs: Needs, gains: NDArray[np.float64], shortfall: float, cap: int, first: Sequence[int]
) -> list[int] | None:
    """The first ones, and the asks that none kept before stands in for; None where they are more than `cap`."""
    enough = (1.0 - shortfall) * gains
    kept = np.empty(len(first) + len(gains), dtype=np.int64)
    kept[: len(first)] = first
    many = _candidates.uncovered(np.ascontiguousarray(needs), gains, enough, len(first), cap, kept)
    found: list[int] = kept[:many].tolist()
    return found if many <= cap else None
