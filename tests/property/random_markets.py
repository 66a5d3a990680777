"""Seeded random markets for the property tests, from tiny (brute force) to as large as the testbed."""

from __future__ import annotations

import random
from dataclasses import dataclass

from themis.bids import Bid, BidRow, FreeMachine, Gang, Market
from themis.choices import EmptyBundle
from themis.cluster import Allocation, Level


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    machines: int = 4
    racks: int = 2
    bidders: int = 3
    rows: int = 5
    sizes: tuple[int, ...] = (1, 2, 3, 4)
    units: bool = True
    pinned: bool = True
    empty_bundle: EmptyBundle = EmptyBundle.FINITE


def random_market(seed: int, recipe: Recipe) -> Market:
    rng = random.Random(seed)
    machines = tuple(
        FreeMachine(
            machine_id=f"m{index}",
            rack_id=f"r{rng.randrange(recipe.racks)}",
            free_slots=tuple(rng.randint(0, 3) for _ in range(rng.randint(1, 2))),
        )
        for index in range(recipe.machines)
    )
    bids = tuple(_bid(f"a{index}", rng, machines, recipe) for index in range(recipe.bidders))
    return Market(machines=machines, bids=bids, empty_bundle=recipe.empty_bundle)


def _bid(app_id: str, rng: random.Random, machines: tuple[FreeMachine, ...], recipe: Recipe) -> Bid:
    poor = recipe.empty_bundle is EmptyBundle.LEXICOGRAPHIC and rng.random() < 0.7
    empty = 0.0 if poor else rng.uniform(0.05, 0.5)
    rows = tuple(_row(rng, machines, recipe) for _ in range(rng.randint(1, recipe.rows)))
    return Bid(app_id=app_id, round_id=0, empty_value=empty, rows=rows)


def _row(rng: random.Random, machines: tuple[FreeMachine, ...], recipe: Recipe) -> BidRow:
    gangs = tuple(_gang(rng, recipe) for _ in range(rng.randint(0 if recipe.pinned else 1, 2)))
    pinned = {}
    if recipe.pinned and (not gangs or rng.random() < 0.3):
        pinned = {rng.choice(machines).machine_id: rng.randint(1, 2)}
    return BidRow(value=rng.uniform(0.1, 1.0), gangs=gangs, pinned=Allocation.of(pinned))


def _gang(rng: random.Random, recipe: Recipe) -> Gang:
    gpus = rng.choice(recipe.sizes)
    units = [unit for unit in (1, 2, 3) if gpus % unit == 0] if recipe.units else [1]
    return Gang(gpus, rng.choice(list(Level)), rng.choice((1, 1, 2)), rng.choice(units))


def check_feasible(market: Market, wins: dict) -> None:
    """Wins use no GPU twice, honour every row's gangs by size, level, slot and unit, and pinned GPUs exactly."""
    free = {machine.machine_id: machine for machine in market.machines}
    used: dict[str, int] = {}
    in_slot: dict[tuple[str, int], int] = {}
    bids = {bid.app_id: bid for bid in market.bids}
    for app_id, win in wins.items():
        row = bids[app_id].rows[win.row]
        pinned: dict[str, int] = {}
        placed = []
        for gang in win.gangs:
            for machine, count in gang.gpus:
                used[machine] = used.get(machine, 0) + count
            if gang.slot is not None:
                ((machine, count),) = gang.gpus.counts
                in_slot[machine, gang.slot] = in_slot.get((machine, gang.slot), 0) + count
            if gang.pinned:
                for machine, count in gang.gpus:
                    pinned[machine] = pinned.get(machine, 0) + count
            else:
                placed.append(gang)
            assert gang.level == true_level(free, gang)
        assert Allocation.of(pinned) == row.pinned
        _match(row, placed)
    for machine, count in used.items():
        assert count <= free[machine].free
    for (machine, slot), count in in_slot.items():
        assert count <= free[machine].free_slots[slot]


def true_level(free: dict[str, FreeMachine], gang) -> Level:
    machines = [machine for machine, _ in gang.gpus]
    if len(machines) == 1:
        return Level.SLOT if gang.slot is not None else Level.MACHINE
    return Level.RACK if len({free[machine].rack_id for machine in machines}) == 1 else Level.CLUSTER


def _match(row: BidRow, placed: list) -> None:
    """Every asked gang has a placed one of its own that serves it (backtracking: they may be interchangeable)."""
    asked = [gang for gang in row.gangs for _ in range(gang.count)]
    assert len(asked) == len(placed)
    assert _assign(asked, placed)


def _assign(asked: list, placed: list) -> bool:
    if not asked:
        return True
    return any(
        _serves(asked[0], gang) and _assign(asked[1:], placed[:index] + placed[index + 1 :])
        for index, gang in enumerate(placed)
    )


def _serves(asked: Gang, gang) -> bool:
    near_enough = gang.level <= asked.within or asked.gpus == 1
    return gang.gpus.gpus == asked.gpus and near_enough and all(count % asked.unit_gpus == 0 for _, count in gang.gpus)
