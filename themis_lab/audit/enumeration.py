"""Every feasible choice of a tiny market, for properties that need exhaustive enumeration."""

from __future__ import annotations

import math
from collections.abc import Iterator

from rm_plugin.solvers.brute_force import place_all
from themis.bids import BidRow, Market

MAX_CHOICES = 3000
"""A market with more combinations of rows is not tiny."""
_MAX_GANGS = 5
_MAX_FREE_GPUS = 24


def is_tiny(market: Market) -> bool:
    """Whether brute force solves the market at once."""
    choices = math.prod(1 + len(bid.rows) for bid in market.bids)
    gangs = max((sum(gang.count for gang in row.gangs) for bid in market.bids for row in bid.rows), default=0)
    return choices <= MAX_CHOICES and gangs <= _MAX_GANGS and market.free.gpus <= _MAX_FREE_GPUS


def choices(market: Market, floor: dict[str, float] | None = None) -> Iterator[dict[str, BidRow]]:
    """Yield every feasible choice of rows by app id once, except those that give a bidder less than its floor.

    Args:
        market: A tiny market.
        floor: Least value by app id; no limit for apps that it lacks.
    """
    for chosen in _rows(market, 0, market.free.gpus, floor or {}):
        if place_all(market.machines, chosen) is not None:
            yield chosen


def _rows(market: Market, index: int, gpus: int, floor: dict[str, float]) -> Iterator[dict[str, BidRow]]:
    if index == len(market.bids):
        yield {}
        return
    bid = market.bids[index]
    least = floor.get(bid.app_id, 0.0)
    if bid.empty_value >= least:
        yield from _rows(market, index + 1, gpus, floor)
    for row in bid.rows:
        if row.value >= least and row.gpus <= gpus:
            for rest in _rows(market, index + 1, gpus - row.gpus, floor):
                yield {bid.app_id: row, **rest}
