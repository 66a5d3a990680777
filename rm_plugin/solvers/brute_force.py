"""Winner determination by enumeration: the reference of tests, for a few bidders and machines."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from rm_plugin.solvers.exact.market_arrays import digests_of
from rm_plugin.solvers.port import Solution, SolveStatus, Win, each_alone
from rm_plugin.solvers.realise import pinned_gangs
from themis.bids import Bid, BidRow, FreeMachine, GangRequest, Market, PlacedGang
from themis.choices import EmptyBundle
from themis.errors import InputError
from themis.placement.enumeration import FreeCounts, placements

_UNITS = 2.0**40
"""Gains are whole multiples of 2**-40, so that sums do not depend on their order."""

_MAX_CHOICES = 2_000_000
"""Choices of rows. A market with more needs gigabytes and minutes."""

_MAX_DEPTH = 200
"""Machines, and gangs won at once: the search recurses over both."""

Choice = tuple[int | None, ...]


class BruteForceSolver:
    """Tries every choice of rows, and for each every placement. Only row digests and pinned gangs are shared code.

    Ties, as `exact` decides them: most bidders with a positive value, largest objective, fewest GPUs, smallest sum of
    digests. Of rows that differ only in which pinned GPUs belong together, the one with the fewest parts, then the
    smaller ones. If rows are equal in all of that, or objectives are within one unit, the two may choose differently.
    It reads no clock: the time limit is ignored, and the answer is always optimal.
    """

    name = "brute_force"

    def solve(self, market: Market, time_limit_s: float) -> Solution:  # noqa: ARG002 - the port's signature
        """Solve one small market.

        Raises:
            InputError: A finite market with an empty bundle worth 0, or a market too large to try everything.
        """
        bids = sorted(market.bids, key=lambda bid: bid.app_id)
        if market.empty_bundle is EmptyBundle.FINITE and any(bid.empty_value <= 0 for bid in bids):
            raise InputError("an empty bundle must be worth more than 0 in a finite market")
        _refuse_large(market)
        machines = sorted(market.machines, key=lambda machine: machine.machine_id)
        for positive, log_objective, choice in _ranked(bids, market.free.gpus, digests_of(market)):
            rows = {bid.app_id: bid.rows[row] for bid, row in zip(bids, choice, strict=True) if row is not None}
            placed = place_all(machines, rows)
            if placed is not None:
                taken = {bid.app_id: row for bid, row in zip(bids, choice, strict=True) if row is not None}
                return Solution(
                    status=SolveStatus.OPTIMAL,
                    gap=0.0,
                    log_objective=log_objective,
                    positive=positive,
                    wins={app_id: Win(row=row, gangs=placed[app_id]) for app_id, row in taken.items()},
                )
        raise AssertionError("the choice without winners is always feasible")

    def without(self, market: Market, app_ids: Sequence[str], time_limit_s: float) -> dict[str, Solution]:
        """One problem after the other."""
        return each_alone(self, market, app_ids, time_limit_s)


def _refuse_large(market: Market) -> None:
    free = market.free.gpus
    gangs = sum(
        max((sum(gang.count for gang in row.gangs) for row in bid.rows if row.gpus <= free), default=0)
        for bid in market.bids
    )
    for what, number, most in (
        ("choices of rows", math.prod(1 + len(bid.rows) for bid in market.bids), _MAX_CHOICES),
        ("machines", len(market.machines), _MAX_DEPTH),
        ("gangs", gangs, _MAX_DEPTH),
    ):
        if number > most:
            raise InputError(f"brute_force takes at most {most} {what}", remedy="choose another solver")


def _ranked(
    bids: Sequence[Bid], free_gpus: int, digests: Mapping[tuple[str, int], int]
) -> list[tuple[int, float, Choice]]:
    """All choices that ask for no more GPUs than are free, best first."""
    scored = []
    places = [_places(bid) for bid in bids]
    for choice in _choices(bids, free_gpus):
        values = [
            bid.empty_value if row is None else bid.rows[row].value for bid, row in zip(bids, choice, strict=True)
        ]
        logs = [math.log(value) for value in values if value > 0]
        gpus = sum(bid.rows[row].gpus for bid, row in zip(bids, choice, strict=True) if row is not None)
        units = sum(_gain(bid, row) for bid, row in zip(bids, choice, strict=True) if row is not None)
        # A row without a digest has no place even alone.
        digest = sum(
            digests.get((bid.app_id, row), 0) for bid, row in zip(bids, choice, strict=True) if row is not None
        )
        place = tuple(-1 if row is None else where[row] for where, row in zip(places, choice, strict=True))
        scored.append(((-len(logs), -units, gpus, digest, place), math.fsum(logs), choice))
    scored.sort(key=lambda entry: entry[0])
    return [(-key[0], log_objective, choice) for key, log_objective, choice in scored]


def _gain(bid: Bid, row: int) -> int:
    """Log-value gain of a row in whole units; its log value if winning nothing is worth 0."""
    log_empty = math.log(bid.empty_value) if bid.empty_value > 0 else 0.0
    return round((math.log(bid.rows[row].value) - log_empty) * _UNITS)


def _places(bid: Bid) -> list[int]:
    """Rank of each row in an order of content; the position decides only between equal rows."""
    content = [
        (
            len(row.pinned_parts),
            sorted(row.pinned_parts),
            sorted(Counter(row.gangs).items()),
            row.pinned.counts,
            -row.value,
            index,
        )
        for index, row in enumerate(bid.rows)
    ]
    places = [0] * len(content)
    for place, (*_, index) in enumerate(sorted(content)):
        places[index] = place
    return places


def _choices(bids: Sequence[Bid], free_gpus: int) -> Iterator[Choice]:
    if not bids:
        yield ()
        return
    for rest in _choices(bids[1:], free_gpus):
        used = sum(bid.rows[row].gpus for bid, row in zip(bids[1:], rest, strict=True) if row is not None)
        yield (None, *rest)
        for index, row in enumerate(bids[0].rows):
            if row.value > bids[0].empty_value and row.gpus + used <= free_gpus:
                yield (index, *rest)


def place_all(machines: Sequence[FreeMachine], rows: Mapping[str, BidRow]) -> dict[str, tuple[PlacedGang, ...]] | None:
    """Place all gangs of these rows by exhaustive search. Returns None if there are no places."""
    pinned: Counter[str] = Counter()
    for row in rows.values():
        pinned.update(dict(row.pinned))
    free = {machine.machine_id: machine.free for machine in machines}
    if any(gpus > free.get(machine_id, 0) for machine_id, gpus in pinned.items()):
        return None
    capacity = FreeCounts.of(machines).without([(n, pinned[each.machine_id]) for n, each in enumerate(machines)])
    # A gang that names its device type has fewer places than one that does not: it goes first.
    gangs = sorted(
        (gang.within, -gang.gpus, not gang.device, app_id, gang) for app_id, row in rows.items() for gang in row.gangs
    )
    wanted = [(app_id, gang) for *_, app_id, gang in gangs for _ in range(gang.count)]
    found = _place([gang for _, gang in wanted], capacity, set())
    if found is None:
        return None
    rack_of = {machine.machine_id: machine.rack_id for machine in machines}
    placed: dict[str, list[PlacedGang]] = {app_id: [] for app_id in rows}
    for (app_id, _), gang in zip(wanted, found, strict=True):
        placed[app_id].append(gang)
    return {app_id: (*gangs, *pinned_gangs(rows[app_id].pinned_parts, rack_of)) for app_id, gangs in placed.items()}


def _place(
    gangs: Sequence[GangRequest], capacity: FreeCounts, dead: set[tuple[int, FreeCounts]]
) -> list[PlacedGang] | None:
    """Place gangs by backtracking. Slot gangs come first, so that later ones need only counts by machine.

    Args:
        gangs: The gangs, in order.
        capacity: The free GPUs.
        dead: Numbers of gangs left and free GPUs with which no placement exists.
    """
    if not gangs:
        return []
    if (len(gangs), capacity) in dead:
        return None
    for gang, left in placements(gangs[0], capacity):
        rest = _place(gangs[1:], left, dead)
        if rest is not None:
            return [gang, *rest]
    dead.add((len(gangs), capacity))
    return None
