"""Choices some of whose gangs find no place, made to fit by swaps: each time the one that loses least."""

from __future__ import annotations

import numpy as np

from rm_plugin.solvers.exact.places import Packed, Places
from rm_plugin.solvers.exact.rows import Ints, Rows

_MOST_SWAPS = 4
"""Rows of a bidder that are looked at in place of one whose gangs do not all find places."""


def mended(rows: Rows, places: Places, choice: Ints) -> tuple[Ints, Packed]:
    """A choice (row by bidder, -1 for none) that pins no GPU twice, less gangs without a place; and its places."""
    while True:
        packed = places.pack(choice[choice >= 0])
        if isinstance(packed, Packed):
            return choice, packed
        for _, bidder, row in swaps(rows, choice, packed):
            trial = choice.copy()
            trial[bidder] = row
            # To win nothing pins nothing, so one of the swaps will do.
            if (places.left_beside(trial[trial >= 0]) >= 0).all():
                choice = trial
                break


def swaps(rows: Rows, choice: Ints, kind: int) -> list[tuple[int, int, int]]:
    """What winners lose by their best row, or -1 for none, that asks for fewer gangs of a kind and no more GPUs."""
    found = []
    chosen = choice[choice >= 0]
    for row in chosen[rows.counts[chosen, kind] > 0].tolist():
        bidder = int(np.searchsorted(rows.row_start, row, side="right")) - 1
        end = int(rows.row_start[bidder + 1])
        less = (rows.counts[row:end, kind] < rows.counts[row, kind]) & (rows.gpus[row:end] <= rows.gpus[row])
        others = row + np.flatnonzero(less)[:_MOST_SWAPS]
        found += [(int(rows.gain[row] - rows.gain[other]), bidder, int(other)) for other in others.tolist()]
        found.append((int(rows.gain[row]), bidder, -1))
    return sorted(found)
