"""Markets of one machine on which all gangs fit whose GPUs do: a knapsack of one resource, solved outright."""

from __future__ import annotations

import numpy as np

from rm_plugin.solvers.exact import _core
from rm_plugin.solvers.exact.found import Found, as_solution
from rm_plugin.solvers.exact.places import Packed, Places
from rm_plugin.solvers.exact.rows import MarketArrays
from rm_plugin.solvers.port import Solution
from themis.cluster import Level

_MOST_STEPS = 1_000_000
"""Rows and bidders times GPUs: some milliseconds a problem, of which there are no more than GPUs."""


class OneMachineMarket:
    """The N + 1 problems of a market in which only the number of GPUs counts.

    Args:
        arrays: The market.
        row_of: The winning row by bidder position.
        packed: Where the gangs of these rows lie.
    """

    def __init__(self, arrays: MarketArrays, row_of: dict[int, int], packed: Packed) -> None:
        self._arrays = arrays
        self._row_of = row_of
        self._packed = packed
        self._position = {app_id: place for place, app_id in enumerate(arrays.app_ids)}

    def solution(self, without: str | None) -> Solution:
        """Who wins without a bidder (None: with all); gangs find their places with all."""
        if without is None:
            by_row = self._packed.gangs()
            gangs = {bidder: by_row.get(row, ()) for bidder, row in self._row_of.items()}
            return as_solution(self._arrays, Found(skip=-1, row_of=self._row_of, gangs=gangs), placed=True)
        skip = self._position[without]
        return as_solution(self._arrays, Found(skip=skip, row_of=_best(self._arrays, skip)), placed=False)


def one_machine(arrays: MarketArrays, places: Places) -> OneMachineMarket | None:
    """The market as one in which only the number of GPUs counts; None where that is not so, or it is very large."""
    steps = (arrays.rows.rows + len(arrays.bids)) * arrays.free_gpus
    if not _only_gpus_count(arrays) or steps > _MOST_STEPS:
        return None
    row_of = _best(arrays, -1)
    packed = places.pack(np.array(list(row_of.values()), dtype=np.int32))
    return OneMachineMarket(arrays, row_of, packed) if isinstance(packed, Packed) else None


def _only_gpus_count(arrays: MarketArrays) -> bool:
    """True where there is one machine, of which one slot is free, or nobody asks for a slot."""
    if len(arrays.machines) != 1:
        return False
    free_slots = sum([free > 0 for free in arrays.machines[0].free_slots])
    return free_slots == 1 or all(kind.level is not Level.SLOT for kind in arrays.kinds)


def _best(arrays: MarketArrays, skip: int) -> dict[int, int]:
    rows = arrays.rows
    return _core.best_on_one_machine(rows.row_start, rows.gain, rows.gpus, rows.tie, arrays.free_gpus, skip)
