"""An answer for markets that cannot be made ready in time: one price for all GPUs, in place of prices of all limits.

Any price of a GPU bounds every choice from above: the price of all free GPUs, and what each bidder's best row gains
beyond the price of its own. The choice is those best rows, mended where their gangs find no places.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np

from rm_plugin.solvers.exact.found import Found, as_solution, gap_of, rows_by_bidder
from rm_plugin.solvers.exact.mending import mended
from rm_plugin.solvers.exact.places import Packed, Places
from rm_plugin.solvers.exact.rows import Ints, Longs, MarketArrays
from rm_plugin.solvers.port import Solution

_MOST_TRIED = 4
"""Rows that a bidder tries where neither of its best ones at the prices is left."""


class HastyMarket:
    """A market's rows as they were read, without limits or prices of them, and one choice for its N + 1 problems."""

    def __init__(self, arrays: MarketArrays) -> None:
        self._arrays = arrays
        self._places = Places(arrays)
        self._free = int(self._places.free.sum())
        self._position = {bid.app_id: place for place, bid in enumerate(arrays.bids)}

    def solution(self, without: str | None) -> Solution:
        """The choice, less the row of a bidder (None: with all), and the gap to the bound without that bidder."""
        found = self.found(-1 if without is None else self._position[without])
        return as_solution(self._arrays, found, placed=without is None)

    def found(self, skip: int) -> Found:
        """As `solution`, by the position of the bidder (-1: with all)."""
        choice, packed = self._choice
        row_of = {bidder: row for bidder, row in rows_by_bidder(choice).items() if bidder != skip}
        by_row = packed.gangs() if skip < 0 else {}
        return Found(
            skip=skip,
            row_of=row_of,
            gap=gap_of(self._arrays, row_of, self.bound(skip)),
            gangs={bidder: by_row.get(row, ()) for bidder, row in row_of.items()},
        )

    def bound(self, skip: int) -> int:
        """What no choice without the bidder at `skip` (-1: with all) gains more than, in whole units."""
        price, margins = self._priced
        return price * self._free + sum(margin for bidder, margin in enumerate(margins) if bidder != skip)

    @cached_property
    def _priced(self) -> tuple[int, list[int]]:
        """The least price of a GPU at which the best rows ask for no more than is free; what each gains beyond it."""
        rows = self._arrays.rows
        low, high = -1, int(rows.gain.max(initial=0))
        while high - low > 1:
            price = (low + high) // 2
            if int(rows.gpus[self._best(price)].sum(dtype=np.int64)) <= self._free:
                high = price
            else:
                low = price
        margins = [0] * len(self._arrays.bids)
        margin = self._margin(high)
        for row in self._best(high).tolist():
            margins[int(rows.bidder[row])] = int(margin[row])
        return high, margins

    def _margin(self, price: int) -> Longs:
        """What each row gains beyond the price of its GPUs, at least -1 [rows]."""
        rows = self._arrays.rows
        # Beyond its gain a price only says that a row is too dear; so products stay small.
        each = np.minimum(price, rows.gain // rows.gpus + 1)
        margin: Longs = rows.gain - each * rows.gpus
        return margin

    def _best(self, price: int) -> Ints:
        """The best row of each bidder that gains something beyond a price; of equal ones the one of the fewest GPUs."""
        rows, margin = self._arrays.rows, self._margin(price)
        wanted = np.flatnonzero((margin == self._most_of(margin)) & (margin > 0))
        of_wanted = rows.gpus[wanted]
        few = np.full(rows.rows, np.iinfo(np.int32).max, dtype=np.int32)
        few[wanted] = of_wanted
        wanted = wanted[of_wanted == -self._most_of(-few)[wanted]]
        best: Ints = wanted[np.unique(rows.bidder[wanted], return_index=True)[1]]
        return best

    def _most_of(self, number: Longs | Ints) -> Longs | Ints:
        """The largest number of any row of the same bidder [rows]."""
        start = self._arrays.rows.row_start
        some = np.diff(start) > 0
        return np.repeat(np.maximum.reduceat(number, start[:-1][some]), np.diff(start)[some])

    @cached_property
    def _choice(self) -> tuple[Ints, Packed]:
        """Row by bidder, -1 for none, and places.

        Those who gain most beyond the price choose first: the best row at a price at which all ask for too much (at
        no price, no such), or at this one, or the best of few that ask for no more GPUs than are left.
        """
        rows, bidders = self._arrays.rows, len(self._arrays.bids)
        price, margins = self._priced
        wished = np.full((2, bidders), -1, dtype=np.int64)
        for best, at in zip(wished, (max(price - 1, 0), price), strict=True):
            found = self._best(at)
            best[rows.bidder[found]] = found
        choice = np.full(bidders, -1, dtype=np.int32)
        free = self._places.free.copy()
        left = self._free
        for bidder in sorted(range(bidders), key=lambda bidder: -margins[bidder]):
            first, end = rows.row_start[bidder : bidder + 2].tolist()
            others = first + np.flatnonzero(rows.gpus[first:end] <= left)[:_MOST_TRIED]
            for row in (*wished[:, bidder].tolist(), *others.tolist()):
                pins = slice(rows.pin_start[row], rows.pin_start[row + 1])
                if row >= 0 and rows.gpus[row] <= left and (rows.pin_gpus[pins] <= free[rows.pin_machine[pins]]).all():
                    choice[bidder] = row
                    left -= int(rows.gpus[row])
                    free[rows.pin_machine[pins]] -= rows.pin_gpus[pins]
                    break
        return mended(rows, self._places, choice)
