"""Random markets by recipe, from tiny ones for brute force to medium ones."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

from msgspec.structs import replace

from themis.bids import Bid, BidRow, FreeMachine, GangRequest, Market
from themis.choices import EmptyBundle
from themis.cluster import Allocation, Level
from themis.values import Value


def uniform_value(rng: random.Random) -> float:
    """Values that never tie."""
    return rng.uniform(0.1, 1.0)


class Recipe(Value, frozen=True, kw_only=True):
    """How to make a random market: numbers of machines, racks, bidders and rows, and sizes of gangs.

    Attributes:
        machines: Number of machines, of one or two slots each.
        racks: Number of racks.
        bidders: Number of bidders.
        rows: Largest number of rows of a bid.
        sizes: GPUs of a gang.
        levels: Levels that gangs may request.
        units: Whether gangs may consist of units of several GPUs.
        pinned: Whether rows may pin GPUs on named machines.
        pinned_gangs: Whether pinned GPUs are on two machines and grouped by gangs.
        regrouped: Whether every bid repeats each row with several pinned GPUs twice: with all of them in one gang, and
            with one gang per GPU.
        explicit: Whether all rows name machines only.
        devices: The device types of machines. With several types, half of the gangs name one.
        slot_gpus: Largest number of free GPUs of a slot.
        value: Returns a random value of a row.
        empty: Largest value of an empty bundle, relative to the smallest value of a row.
        empty_bundle: The rule for winning nothing; under `lexicographic` most empty bundles have the value 0.
    """

    machines: int = 4
    racks: int = 2
    bidders: int = 3
    rows: int = 5
    sizes: tuple[int, ...] = (1, 2, 3, 4)
    levels: tuple[Level, ...] = tuple(Level)
    units: bool = True
    pinned: bool = True
    pinned_gangs: bool = False
    regrouped: bool = False
    explicit: bool = False
    devices: tuple[str, ...] = ("gpu",)
    slot_gpus: int = 3
    value: Callable[[random.Random], float] = uniform_value
    empty: tuple[float, float] = (0.05, 0.5)
    empty_bundle: EmptyBundle = EmptyBundle.FINITE


def random_market(seed: int, recipe: Recipe) -> Market:
    """Return the market of a seed."""
    rng = random.Random(seed)
    machines = tuple(
        FreeMachine(
            machine_id=f"m{index}",
            rack_id=f"r{rng.randrange(recipe.racks)}",
            free_slots=tuple(rng.randint(0, recipe.slot_gpus) for _ in range(rng.randint(1, 2))),
            device=recipe.devices[index % len(recipe.devices)],
        )
        for index in range(recipe.machines)
    )
    bids = tuple(_bid(f"a{index}", rng, machines, recipe) for index in range(recipe.bidders))
    return Market(machines=machines, bids=bids, empty_bundle=recipe.empty_bundle)


def _bid(app_id: str, rng: random.Random, machines: tuple[FreeMachine, ...], recipe: Recipe) -> Bid:
    poor = recipe.empty_bundle is EmptyBundle.LEXICOGRAPHIC and rng.random() < 0.7
    empty = 0.0 if poor else rng.uniform(*recipe.empty)
    rows = tuple(_row(rng, machines, recipe) for _ in range(rng.randint(1, recipe.rows)))
    if recipe.regrouped:
        rows += tuple(other for row in rows for other in _regrouped(row))
    return Bid(app_id=app_id, round_id=0, empty_value=empty, rows=rows)


def _row(rng: random.Random, machines: tuple[FreeMachine, ...], recipe: Recipe) -> BidRow:
    if recipe.explicit:
        chosen = rng.sample(machines, rng.randint(1, min(3, len(machines))))
        counts = {machine.machine_id: rng.randint(1, 3) for machine in chosen}
        return BidRow(value=recipe.value(rng), pinned=Allocation.of(counts))
    gangs = tuple(_gang(rng, recipe) for _ in range(rng.randint(0 if recipe.pinned else 1, 2)))
    pinned: tuple[Allocation, ...] = ()
    if recipe.pinned and (not gangs or rng.random() < 0.3):
        pinned = tuple(
            Allocation.of({rng.choice(machines).machine_id: rng.randint(1, 2)})
            for _ in range(rng.randint(1, 2) if recipe.pinned_gangs else 1)
        )
    return BidRow(
        value=recipe.value(rng),
        gangs=gangs,
        pinned=Allocation.sum_of(pinned),
        pinned_gangs=pinned if recipe.pinned_gangs else (),
    )


def _regrouped(row: BidRow) -> Iterator[BidRow]:
    """The same row with all pinned GPUs in one gang, and with one gang per GPU."""
    if row.pinned.gpus > 1:
        yield replace(row, pinned_gangs=(row.pinned,))
        alone = [Allocation.of({machine: 1}) for machine, count in row.pinned for _ in range(count)]
        yield replace(row, pinned_gangs=tuple(alone))


def _gang(rng: random.Random, recipe: Recipe) -> GangRequest:
    gpus = rng.choice(recipe.sizes)
    units = [unit for unit in (1, 2, 3) if gpus % unit == 0] if recipe.units else [1]
    gang = GangRequest(gpus, rng.choice(recipe.levels), rng.choice((1, 1, 2)), rng.choice(units))
    if len(recipe.devices) == 1 or rng.random() < 0.5:
        return gang
    return replace(gang, device=rng.choice(recipe.devices))
