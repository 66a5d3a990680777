"""The solver `exact` on families that stress it: against brute force on small markets, against HiGHS on larger ones."""

import random

import pytest
from msgspec.structs import replace
from random_markets import Recipe, check_feasible, random_market

from rm_plugin.solvers.brute_force import BruteForceSolver
from rm_plugin.solvers.highs import HighsSolver
from rm_plugin.solvers.ladder import exact_ladder
from rm_plugin.solvers.port import SolveStatus
from themis.bids import BidRow, FreeMachine, GangRequest, Market
from themis.choices import EmptyBundle
from themis.cluster import Allocation, Level

LEXICOGRAPHIC = EmptyBundle.LEXICOGRAPHIC
SLOT, MACHINE, RACK, CLUSTER = Level


def kept(market: Market, seed: int, likely: float = 0.7) -> Market:
    """Most rows also pin an odd number of GPUs, so that several bidders share machines whose limits do not add up."""
    rng = random.Random(seed)
    free = [machine for machine in market.machines if machine.free]

    def with_pins(row: BidRow) -> BidRow:
        if not free or row.pinned or rng.random() > likely:
            return row
        chosen = rng.sample(free, min(len(free), rng.choice((1, 1, 2))))
        pinned = {each.machine_id: min(each.free, rng.choice((1, 1, 2, 3))) for each in chosen}
        return replace(row, pinned=Allocation.of(pinned), pinned_gangs=())

    bids = tuple(replace(bid, rows=tuple(map(with_pins, bid.rows))) for bid in market.bids)
    return replace(market, bids=bids)


PINNED = {
    "odd pins": Recipe(bidders=4, rows=4, units=False, slot_gpus=4),
    "odd pins, even gangs": Recipe(sizes=(2, 4), levels=(MACHINE,), bidders=4, rows=4, machines=3, slot_gpus=4),
    "odd pins, one machine": Recipe(machines=1, bidders=4, rows=5, sizes=(1, 2, 3), slot_gpus=6),
    "odd pins, slots": Recipe(levels=(SLOT, SLOT, MACHINE), bidders=4, rows=4, machines=3, slot_gpus=4),
    "odd pins, racks": Recipe(machines=5, sizes=(2, 4, 6), levels=(RACK, RACK, MACHINE), units=False, rows=4),
    "odd pins, units": Recipe(sizes=(2, 4, 6), levels=(RACK, CLUSTER), machines=5, slot_gpus=4, rows=4),
    "odd pins, lexicographic": Recipe(bidders=4, rows=4, empty_bundle=LEXICOGRAPHIC),
}
PLAIN = {
    "slots of odd sizes": Recipe(sizes=(2, 3, 5), levels=(SLOT, SLOT, MACHINE), slot_gpus=6, pinned=False),
    "cutting stock": Recipe(machines=4, sizes=(2, 3, 5), levels=(MACHINE,), slot_gpus=4, pinned=False, bidders=4),
    "explicit, fought over": Recipe(machines=3, explicit=True, bidders=5, rows=5, slot_gpus=2),
    "explicit, lexicographic": Recipe(explicit=True, bidders=4, rows=5, empty_bundle=LEXICOGRAPHIC),
    "all levels of one size": Recipe(sizes=(4,), machines=5, racks=2, bidders=4, rows=4),
}


def check_against(reference, market, seed):
    found, best = exact_ladder().solve(market, 60.0), reference.solve(market, 60.0)
    assert (found.status, found.gap) == (SolveStatus.OPTIMAL, 0.0), seed
    assert found.positive == best.positive, seed
    assert found.log_objective == pytest.approx(best.log_objective, abs=1e-9), seed
    check_feasible(market, found.wins)
    return len(found.wins)


@pytest.mark.parametrize("name", [*PINNED, *PLAIN])
def test_small_markets_agree_with_brute_force(name):
    wins = 0
    for seed in range(50):
        market = random_market(seed, (PINNED | PLAIN)[name])
        wins += check_against(BruteForceSolver(), kept(market, seed) if name in PINNED else market, seed)
    assert wins > 50


def test_kept_gpus_are_shared_by_several_bidders_on_a_machine():
    """What these families are for."""
    shared = 0
    for seed in range(50):
        market = kept(random_market(seed, PINNED["odd pins, one machine"]), seed)
        pinning = [bid for bid in market.bids if any(row.pinned for row in bid.rows)]
        shared += len(pinning) > 1 and any(count % 2 for bid in pinning for row in bid.rows for _, count in row.pinned)
    assert shared > 40


MEDIUM = {
    "gangs": Recipe(machines=12, racks=3, bidders=8, rows=10, sizes=(1, 2, 4), slot_gpus=4, pinned=False, units=False),
    "any sizes": Recipe(machines=12, racks=3, bidders=8, rows=8, sizes=(1, 2, 3, 5, 7), slot_gpus=4, pinned=False),
    "racks and units": Recipe(machines=12, racks=3, bidders=8, rows=8, sizes=(4, 6, 8), levels=(RACK, CLUSTER)),
    "pinned": Recipe(machines=10, racks=2, bidders=8, rows=8, pinned_gangs=True, units=False, slot_gpus=4),
    "odd pins": Recipe(machines=10, racks=2, bidders=8, rows=8, units=False, slot_gpus=4),
    "lexicographic": Recipe(machines=8, racks=2, bidders=10, rows=6, empty_bundle=LEXICOGRAPHIC),
}


@pytest.mark.parametrize("name", MEDIUM)
def test_medium_markets_agree_with_highs(name):
    for seed in range(4):
        market = random_market(seed, MEDIUM[name])
        check_against(HighsSolver(), kept(market, seed) if name == "odd pins" else market, seed)


def test_a_medium_market_of_like_machines_is_placed_gang_by_gang():
    """Forty machines of 8 GPUs with two slots, many gangs of three sizes: the places must be found as well."""
    machines = tuple(FreeMachine(machine_id=f"m{n:02}", rack_id=f"r{n % 4}", free_slots=(4, 4)) for n in range(40))
    shapes = [
        GangRequest(3, MACHINE),
        GangRequest(5, MACHINE),
        GangRequest(4, SLOT),
        GangRequest(6, RACK, 1, 2),
        GangRequest(9, RACK),
        GangRequest(7, CLUSTER),
    ]
    rng = random.Random(0)
    drawn = random_market(0, Recipe(bidders=10, rows=12, pinned=False))
    bids = tuple(
        replace(
            bid,
            rows=tuple(
                replace(row, gangs=tuple(replace(each, count=rng.randint(1, 8)) for each in rng.sample(shapes, 2)))
                for row in bid.rows
            ),
        )
        for bid in drawn.bids
    )
    check_against(HighsSolver(), replace(drawn, machines=machines, bids=bids), 0)
