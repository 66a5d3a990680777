"""Bids as tables of GPUs by machine. They hold few of the possible rows, so they lose value."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from am.agent.bids.bidding import make_bid
from am.agent.model.fairness import Valuer
from am.agent.model.finish_time import finish_time_s, split_evenly
from am.agent.model.views import AppView, ClusterView, GangAt
from themis.bids import Bid, BidRow, Offer
from themis.cluster import Allocation, Level

START_MACHINES = 24
"""Largest number of start machines."""


def explicit_bid(app: AppView, offer: Offer, cluster: ClusterView, rng: Random) -> Bid:
    """Return a bid that names machines: 1, 2, 4, .. of the app's gangs, placed from each of some start machines on.

    Machines are filled in the order of their racks, so that a gang tends to be within one rack. The agent's valuation
    is used, of the gangs kept and those on the GPUs.

    Args:
        app: The app; none of its gangs is renewable.
        offer: The round's offer.
        cluster: The app's view of the cluster.
        rng: Chooses the start machines.
    """
    valuer = Valuer.of(app, cluster)
    kept = tuple(gang.at for gang in app.kept)
    empty_value = make_bid(app, offer, cluster).empty_value
    best: dict[Allocation, float] = {}
    for gpus, gangs in _bundles(app, offer, cluster, rng):
        value = valuer.value(finish_time_s(app, (*kept, *gangs), cluster))
        if value > max(empty_value, best.get(gpus, 0.0)):
            best[gpus] = value
    rows = tuple(BidRow(value=value, pinned=gpus) for gpus, value in sorted(best.items()))
    return Bid(app_id=app.app_id, round_id=offer.round_id, empty_value=empty_value, rows=rows)


def _bundles(
    app: AppView, offer: Offer, cluster: ClusterView, rng: Random
) -> Iterator[tuple[Allocation, tuple[GangAt, ...]]]:
    """GPUs by machine, and the gangs on them."""
    shape = app.median_job.shape
    without = len(app.jobs) - len(app.held)
    machines = sorted((machine for machine, _ in offer.free), key=lambda machine: (cluster.rack_of[machine], machine))
    if not machines or not without:
        return
    starts = sorted(rng.sample(range(len(machines)), min(START_MACHINES, len(machines))))
    for gpus in _geometric(shape.demand_min_gpus, min(offer.free.gpus, without * shape.demand_max_gpus)):
        sizes = split_evenly(gpus, without, shape)
        for start in starts:
            found = _laid(sizes, shape.gpus_per_task, [*machines[start:], *machines[:start]], offer.free, cluster)
            if found is not None:
                yield found


def _geometric(least: int, most: int) -> Iterator[int]:
    gpus = least
    while gpus < most:
        yield gpus
        gpus *= 2
    if most >= least:
        yield most


def _laid(
    sizes: tuple[int, ...], unit: int, machines: list[str], free: Allocation, cluster: ClusterView
) -> tuple[Allocation, tuple[GangAt, ...]] | None:
    """Place the gangs one after another on the next machines with enough free GPUs.

    Returns None if the GPUs run out.
    """
    left = free.by_machine()
    taken: dict[str, int] = {}
    gangs = []
    place = 0
    for size in sizes:
        parts: dict[str, int] = {}
        while sum(parts.values()) < size:
            if place == len(machines):
                return None
            machine = machines[place]
            room = min(left[machine] - left[machine] % unit, size - sum(parts.values()))
            left[machine] -= room
            if room:
                parts[machine] = room
            if sum(parts.values()) < size:
                place += 1
        gangs.append(GangAt(size, _level(size, list(parts), cluster)))
        for machine, count in parts.items():
            taken[machine] = taken.get(machine, 0) + count
    return Allocation.of(taken), tuple(gangs)


def _level(gpus: int, machines: list[str], cluster: ClusterView) -> Level:
    if gpus == 1:
        return Level.SLOT
    if len(machines) == 1:
        return Level.MACHINE
    return Level.RACK if len({cluster.rack_of[machine] for machine in machines}) == 1 else Level.CLUSTER
