"""Corner cases of auctions: identical bidders, ties, very large and very small values, no free GPUs, no demand."""

from __future__ import annotations

import math
import random

from msgspec.structs import replace

from themis.bids import Bid, BidRow, FreeMachine, GangRequest, Market
from themis.choices import EmptyBundle
from themis.cluster import Allocation, Level
from themis_lab.audit.recipes import Recipe, random_market

_IN_SLOTS = (Level.SLOT, Level.SLOT, Level.MACHINE, Level.CLUSTER)
_SMALL = Recipe(machines=3, bidders=3, rows=4)


def tied_value(rng: random.Random) -> float:
    """One of three values, so that many choices have the same value."""
    return rng.choice((0.25, 0.5, 0.5, 1.0))


def extreme_value(rng: random.Random) -> float:
    """A value from 1e-9 to 1e9."""
    return math.pow(10.0, rng.uniform(-9.0, 9.0))


def identical(seed: int) -> Market:
    """Two to four bidders with the same bid, and one or two others."""
    rng = random.Random(seed)
    market = random_market(seed, replace(_SMALL, bidders=rng.randint(1, 3), rows=3))
    twin = market.bids[0]
    copies = (replace(twin, app_id=f"t{index}") for index in range(rng.randint(1, 3)))
    return replace(market, bids=(*market.bids, *copies))


def single_bidder(seed: int) -> Market:
    """One bidder."""
    return random_market(seed, replace(_SMALL, bidders=1, rows=8))


def one_machine(seed: int) -> Market:
    """One machine with several slots; all bidders compete for it."""
    rng = random.Random(seed)
    market = random_market(seed, replace(_SMALL, machines=1, racks=1))
    slots = tuple(rng.randint(0, 4) for _ in range(rng.randint(1, 3)))
    return replace(market, machines=(replace(market.machines[0], free_slots=slots),))


def nothing_free(seed: int) -> Market:
    """No free GPU, or no machine at all."""
    if seed % 2:
        return replace(random_market(seed, replace(_SMALL, pinned=False)), machines=())
    market = random_market(seed, _SMALL)
    full = tuple(replace(machine, free_slots=(0,) * len(machine.free_slots)) for machine in market.machines)
    return replace(market, machines=full)


def no_feasible_rows(seed: int) -> Market:
    """Bidders without rows, and rows that never win: too large, too many gangs, or worth less than the empty bundle."""
    rng = random.Random(seed)
    market = random_market(seed, _SMALL)
    bare = Bid(app_id="bare", round_id=0, empty_value=0.3, rows=())
    rows = (
        BidRow(value=9.0, gangs=(GangRequest(market.free.gpus + 1, Level.CLUSTER),)),
        BidRow(value=8.0, gangs=(GangRequest(2, Level.MACHINE, 50),)),
        BidRow(value=7.0, pinned=Allocation.of({"m0": 50})),
        BidRow(value=6.0, gangs=(GangRequest(4, Level.SLOT),)),
        BidRow(value=1e-6, gangs=(GangRequest(1, Level.CLUSTER),)),
    )
    never = Bid(app_id="never", round_id=0, empty_value=0.5, rows=tuple(rng.sample(rows, rng.randint(1, len(rows)))))
    return replace(market, bids=(*market.bids, bare, never))


def lexicographic(seed: int) -> Market:
    """Empty bundles of value 0, for most bidders or for all."""
    recipe = replace(_SMALL, bidders=4, rows=3, empty_bundle=EmptyBundle.LEXICOGRAPHIC)
    market = random_market(seed, recipe)
    if seed % 2:
        return replace(market, bids=tuple(replace(bid, empty_value=0.0) for bid in market.bids))
    return market


def explicit_poor(seed: int) -> Market:
    """Rows that name machines only, with few distinct values and empty bundles of value 0."""
    recipe = Recipe(bidders=4, explicit=True, value=tied_value, empty_bundle=EmptyBundle.LEXICOGRAPHIC)
    market = random_market(seed, recipe)
    return replace(market, bids=tuple(replace(bid, empty_value=0.0) for bid in market.bids))


def unlike_slots(seed: int) -> Market:
    """Machines of four to six slots with 1 to 8 GPUs, partly leased, with gangs within slots and kept GPUs.

    Half of the slots are free. One row of every bidder is a gang as large as the largest free slot, so that it fits
    into as few slots as possible.
    """
    rng = random.Random(seed)
    recipe = Recipe(machines=2, bidders=4, rows=4, sizes=tuple(range(1, 9)), levels=_IN_SLOTS, pinned_gangs=True)
    market = random_market(seed, replace(recipe, units=False))
    machines = tuple(replace(machine, free_slots=_unlike(rng)) for machine in market.machines)
    largest = max(free for machine in machines for free in machine.free_slots)
    bids = tuple(_with_one_in_a_slot(rng, bid, largest) for bid in market.bids)
    return replace(market, machines=machines, bids=bids)


def _unlike(rng: random.Random) -> tuple[int, ...]:
    """The free GPUs of a machine's slots."""
    slots = rng.sample(range(1, 9), rng.randint(4, 6))
    return tuple(rng.choice((gpus, rng.randint(0, gpus - 1))) for gpus in slots)


def _with_one_in_a_slot(rng: random.Random, bid: Bid, gpus: int) -> Bid:
    """A bid whose first row is one gang of `gpus` GPUs within a slot, if `gpus` is above 0."""
    if gpus == 0:
        return bid
    return replace(
        bid, rows=(BidRow(value=rng.uniform(0.3, 1.0), gangs=(GangRequest(gpus, Level.SLOT),)), *bid.rows[1:])
    )


def fragmented(seed: int) -> Market:
    """Many machines with one or two free GPUs, and gangs of up to six GPUs."""
    rng = random.Random(seed)
    market = random_market(seed, Recipe(machines=6, bidders=3, rows=4, sizes=(1, 2, 3, 4, 5, 6)))
    machines = tuple(
        FreeMachine(
            machine_id=machine.machine_id,
            rack_id=machine.rack_id,
            free_slots=tuple(rng.choice((0, 1, 1, 2)) for _ in machine.free_slots),
        )
        for machine in market.machines
    )
    return replace(market, machines=machines)
