"""Envy before payments: how much more an app values another app's win than its own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from themis.bids import Bid, PlacedGang
from themis.cluster import Allocation
from themis_lab.audit.case import Case
from themis_lab.audit.valuation import BidValuer
from themis_lab.audit.values import Sample


def envy(case: Case) -> list[Sample]:
    """For each bidder, the largest value of another's bundle over that of its own, minus 1; 0 for no envy.

    `envy` compares whole bundles. `envy_but_one_gpu` removes from the other's bundle the GPU whose loss lowers its
    value most, because indivisible GPUs make that much envy unavoidable. A bundle has the value of the best of the
    bidder's own rows that it contains.
    """
    if not case.solved or any(value <= 0 for value in case.values.values()):
        return []
    valuer = BidValuer(case)
    return [sample for bid in case.bids.values() for sample in _of_one(case, bid, valuer)]


def _of_one(case: Case, bid: Bid, valuer: BidValuer) -> Iterator[Sample]:
    own = case.values[bid.app_id]
    most, but_one, whom = 0.0, 0.0, "no app"
    for other, win in case.outcome.wins.items():
        if other == bid.app_id:
            continue
        ratio = valuer.value(bid, win.gangs) / own - 1.0
        if ratio > most:
            most, whom = ratio, other
        if ratio > but_one:
            but_one = max(but_one, _least_but_one(valuer, bid, win.gangs) / own - 1.0)
    yield Sample(measure="envy", value=most, what=f"{bid.app_id} envies {whom}")
    yield Sample(measure="envy_but_one_gpu", value=but_one, what=f"{bid.app_id}")


def _least_but_one(valuer: BidValuer, bid: Bid, gangs: Sequence[PlacedGang]) -> float:
    """The value of a bundle without the GPU whose loss lowers it most."""
    return min(
        valuer.value(bid, _less_one(gangs, place, machine_id))
        for place, gang in enumerate(gangs)
        for machine_id, _ in gang.gpus
    )


def _less_one(gangs: Sequence[PlacedGang], place: int, machine_id: str) -> list[PlacedGang]:
    gang = gangs[place]
    left = gang.gpus - Allocation.of({machine_id: 1})
    rest = [PlacedGang(gpus=left, level=gang.level, slot=gang.slot, pinned=gang.pinned)] if left else []
    return [*gangs[:place], *rest, *gangs[place + 1 :]]
