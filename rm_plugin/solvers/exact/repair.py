"""Repair a choice some of whose gangs have no place, by swaps of rows. Each swap is the one that loses least."""

from __future__ import annotations

import numpy as np

from rm_plugin.solvers.exact.market_arrays import Ints, Rows
from rm_plugin.solvers.exact.row_placement import Packed, RowPlacer

_MAX_SWAPS_PER_ROW = 4
"""Other rows of a bidder that are considered for one with a gang that has no place."""


def repair(rows: Rows, placer: RowPlacer, choice: Ints) -> tuple[Ints, Packed]:
    """Swap rows until all gangs have places.

    Example: two machines of 3 free GPUs, and three bidders that each chose a gang of 2 within a machine. Only two such
    gangs fit. The third bidder could take a gang of 1 instead and lose 0.2 of its log value, each other one would lose
    more. So the third bidder's row is swapped.

    Args:
        rows: Rows of the market.
        placer: Places these rows.
        choice: Row by bidder, -1 for none. It pins no GPU twice.

    Returns:
        The repaired choice and its places.
    """
    while True:
        packed = placer.pack(choice[choice >= 0])
        if isinstance(packed, Packed):
            return choice, packed
        for _, bidder, row in swaps(rows, choice, packed):
            trial = choice.copy()
            trial[bidder] = row
            # A swap to no row pins nothing, so at least one trial passes.
            if (placer.left_beside(trial[trial >= 0]) >= 0).all():
                choice = trial
                break


def swaps(rows: Rows, choice: Ints, kind: int) -> list[tuple[int, int, int]]:
    """Swaps that ask for fewer gangs of a kind and no more GPUs, as (loss in whole units, bidder, row or -1 for none).

    The least loss comes first; ties: the smaller bidder, then no row.
    """
    found = []
    chosen = choice[choice >= 0]
    for row in chosen[rows.counts[chosen, kind] > 0].tolist():
        bidder = int(np.searchsorted(rows.row_start, row, side="right")) - 1
        end = int(rows.row_start[bidder + 1])
        less = (rows.counts[row:end, kind] < rows.counts[row, kind]) & (rows.gpus[row:end] <= rows.gpus[row])
        others = row + np.flatnonzero(less)[:_MAX_SWAPS_PER_ROW]
        found += [(int(rows.gain[row] - rows.gain[other]), bidder, int(other)) for other in others.tolist()]
        found.append((int(rows.gain[row]), bidder, -1))
    return sorted(found)
