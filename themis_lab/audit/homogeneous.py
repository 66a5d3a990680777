"""Markets with valuations homogeneous of degree one in GPUs, as the theory of partial allocation assumes.

An app values n times the gangs n times as much, wherever they are placed, and its demand has no limit. GPUs kept from
before count in one of two ways. In `homogeneous` they are worth next to nothing, because a valuation of degree one
gives nothing the value 0. In `homogeneous-kept` they count like what the app wins. That is homogeneous in all that the
app holds, but not in what it wins.
"""

from __future__ import annotations

import random

from themis.bids import Bid, BidRow, FreeMachine, GangRequest, Market
from themis.cluster import Level

NEXT_TO_NOTHING = 1e-9
"""Gangs that an app without kept GPUs is assumed to hold: a finite market cannot have an empty bundle of value 0."""


def homogeneous(seed: int) -> Market:
    """Apps that hold nothing; each wants gangs of one size, 1, 2 or 4 GPUs."""
    return _market(random.Random(seed), kept=False)


def homogeneous_kept(seed: int) -> Market:
    """Apps that keep one to four gangs and value them as much as new ones."""
    return _market(random.Random(seed), kept=True)


def _market(rng: random.Random, *, kept: bool) -> Market:
    bidders = rng.randint(2, 4)
    # At least one machine per bidder: if a bidder had to win nothing, no comparison with its empty bundle would be
    # meaningful.
    machines = tuple(
        FreeMachine(machine_id=f"m{index}", rack_id=f"r{index % 2}", free_slots=(rng.choice((4, 4, 8)),))
        for index in range(rng.randint(bidders, bidders + 1))
    )
    free = sum(machine.free for machine in machines)
    bids = tuple(_bid(f"a{index}", rng, free, kept=kept) for index in range(bidders))
    return Market(machines=machines, bids=bids)


def _bid(app_id: str, rng: random.Random, free: int, *, kept: bool) -> Bid:
    size = rng.choice((1, 1, 2, 4))
    held = rng.randint(1, 4) if kept else NEXT_TO_NOTHING
    gang_value = rng.uniform(0.01, 1.0)
    within = rng.choice((Level.MACHINE, Level.CLUSTER))
    rows = tuple(
        BidRow(value=gang_value * (held + count), gangs=(GangRequest(size, within, count, size),))
        for count in range(1, free // size + 1)
    )
    return Bid(app_id=app_id, round_id=0, empty_value=gang_value * held, rows=rows)
