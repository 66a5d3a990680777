"""Which asks of a bid are worth sending: none that another makes useless, and no more than a cap.

An ask makes another useless when it is worth as much, and fits wherever the other fits: each of its gangs can take the
place of one of the other's, being no larger and asking for no nearer a place.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from am.agent.kinds import GangKind

Counts = NDArray[np.int64]
Needs = NDArray[np.int16]

SHORTFALLS = (0.0, 0.001, 0.002, 0.005, 0.01, 0.02, 0.03, 0.05, 0.08, 0.12, 0.2, 0.35, 0.6, 1.0)
"""Parts of its gain that an ask may lose to be left out, the least first that the cap allows. The last leaves one."""

_MOST_STAIRS = 200


class Yardstick:
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
    least = [dict(zip(levels, stair, strict=True)) for stair in itertools.islice(stairs, _MOST_STAIRS + 1)]
    if len(least) > _MOST_STAIRS:
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


def select(needs: Needs, gains: NDArray[np.float64], cap: int) -> tuple[list[int], int, float]:
    """Asks to send, at most `cap`.

    For every ask left out there is one that is sent, fits wherever it fits, and gains at least (1 - shortfall) of what
    it gains over the empty bundle. The shortfall is the least of `SHORTFALLS` that the cap allows, 0 where it can be.

    Args:
        needs: R x needs, an ask that makes another useless first; see `Yardstick`.
        gains: R gains above 0.
        cap: How many may be sent, 1 or more.

    Returns:
        The asks in order, how many no other makes useless, and the shortfall.
    """
    chosen: list[int] | None = None
    low, high = 0, len(SHORTFALLS) - 1
    alive = _cover(needs, gains, 0.0, len(gains) + 1) or []
    if len(alive) <= cap:
        return alive, len(alive), 0.0
    needs, gains = needs[alive], gains[alive]
    while low < high:
        middle = (low + high) // 2
        tried = _cover(needs, gains, SHORTFALLS[middle], cap)
        low, high = (middle + 1, high) if tried is None else (low, middle)
        chosen = chosen if tried is None else tried
    chosen = chosen or _cover(needs, gains, SHORTFALLS[-1], cap) or []
    return [alive[place] for place in chosen], len(alive), SHORTFALLS[low]


def _cover(needs: Needs, gains: NDArray[np.float64], shortfall: float, cap: int) -> list[int] | None:
    """The asks that no ask kept before them stands in for; None as soon as they are more than `cap`."""
    kept: list[int] = []
    kept_needs = np.empty((min(cap, len(gains)) + 1, needs.shape[1]), dtype=needs.dtype)
    kept_gains = np.empty(len(kept_needs))
    for place, (need, gain) in enumerate(zip(needs, gains, strict=True)):
        rivals = kept_needs[: len(kept)][kept_gains[: len(kept)] >= (1.0 - shortfall) * gain]
        if len(rivals) and (rivals <= need).all(axis=1).any():
            continue
        if len(kept) == cap:
            return None
        kept_needs[len(kept)], kept_gains[len(kept)] = need, gain
        kept.append(place)
    return kept
