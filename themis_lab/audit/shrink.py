"""Shrinking: find a small market that still shows a problem by leaving parts out (delta debugging)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from msgspec.structs import replace

from themis.bids import Bid, BidRow, FreeMachine, GangRequest, Market
from themis.cluster import Allocation, Level

Item = TypeVar("Item")

MAX_TRIES = 2000
"""Largest number of markets tried; the smallest found by then is shown."""


@dataclass(slots=True)
class _Budget:
    left: int
    keep_going: Callable[[], bool]

    def spend(self) -> bool:
        """Whether one more market may be tried."""
        self.left -= 1
        return self.left >= 0 and self.keep_going()


def shrink(
    market: Market,
    persists: Callable[[Market], bool],
    keep_going: Callable[[], bool] = lambda: True,
    max_tries: int = MAX_TRIES,
) -> Market:
    """Return a smaller market for which `persists` still holds.

    It leaves out bidders, rows, gangs, machines and GPUs, and rounds values. The search is greedy and deterministic: it
    continues from the first smaller market in which the problem persists, large steps first, until no single step keeps
    the problem.

    Args:
        market: A market in which `persists` holds.
        persists: Whether the problem is still present. It must not raise. The last market for which it returned True is
            the smallest so far.
        keep_going: Called before each market is tried; shrinking ends when it returns False.
        max_tries: Largest number of markets to try.
    """
    budget = _Budget(max_tries, keep_going)
    while True:
        smaller = _one_step(market, persists, budget)
        if smaller is None:
            return market
        market = smaller


def _one_step(market: Market, persists: Callable[[Market], bool], budget: _Budget) -> Market | None:
    for candidate in _smaller(market):
        if not budget.spend():
            return None
        if candidate != market and persists(candidate):
            return candidate
    return None


def _smaller(market: Market) -> Iterator[Market]:
    """Yield markets one step smaller, large steps first."""
    for bids in _without_parts(market.bids):
        yield replace(market, bids=bids)
    for machines in _without_parts(market.machines):
        yield _on_machines(market, machines)
    for index, bid in enumerate(market.bids):
        for rows in _without_parts(bid.rows):
            yield _with_bid(market, index, replace(bid, rows=rows))
    for index, bid in enumerate(market.bids):
        for place, row in enumerate(bid.rows):
            for less in _smaller_rows(row):
                yield _with_bid(market, index, replace(bid, rows=(*bid.rows[:place], less, *bid.rows[place + 1 :])))
    for place, machine in enumerate(market.machines):
        for fewer in _smaller_machines(machine):
            yield replace(market, machines=(*market.machines[:place], fewer, *market.machines[place + 1 :]))
    yield from _rounded(market)


def _without_parts(items: tuple[Item, ...]) -> Iterator[tuple[Item, ...]]:
    """Yield the items without each half, each quarter, .. and finally without each single item."""
    part = max(1, len(items) // 2)
    while items:
        for start in range(0, len(items), part):
            yield (*items[:start], *items[start + part :])
        if part == 1:
            return
        part //= 2


def _on_machines(market: Market, machines: tuple[FreeMachine, ...]) -> Market:
    """The market on fewer machines, without the rows that pin GPUs on others: a document could not hold those."""
    left = {machine.machine_id for machine in machines}
    bids = tuple(
        replace(bid, rows=tuple(row for row in bid.rows if {machine for machine, _ in row.pinned} <= left))
        for bid in market.bids
    )
    return replace(market, machines=machines, bids=bids)


def _with_bid(market: Market, index: int, bid: Bid) -> Market:
    return replace(market, bids=(*market.bids[:index], bid, *market.bids[index + 1 :]))


def _smaller_rows(row: BidRow) -> Iterator[BidRow]:
    if row.pinned_gangs:
        yield replace(row, pinned_gangs=())
    for gangs in _without_parts(row.gangs):
        if gangs or row.pinned:
            yield replace(row, gangs=gangs)
    for index, gang in enumerate(row.gangs):
        for less in _smaller_gangs(gang):
            yield replace(row, gangs=(*row.gangs[:index], less, *row.gangs[index + 1 :]))
    for machine_id, count in row.pinned if not row.pinned_gangs else ():
        for left in dict.fromkeys((0, count - 1)):
            pinned = Allocation.of({**row.pinned.by_machine(), machine_id: left})
            if pinned or row.gangs:
                yield replace(row, pinned=pinned)


def _smaller_gangs(gang: GangRequest) -> Iterator[GangRequest]:
    for count in dict.fromkeys((1, gang.count - 1)):
        if 0 < count < gang.count:
            yield replace(gang, count=count)
    if gang.unit_gpus > 1:
        yield replace(gang, unit_gpus=1)
    if gang.gpus > gang.unit_gpus:
        yield replace(gang, gpus=gang.gpus - gang.unit_gpus)
    if gang.within is not Level.CLUSTER:
        yield replace(gang, within=Level.CLUSTER)


def _smaller_machines(machine: FreeMachine) -> Iterator[FreeMachine]:
    slots = machine.free_slots
    if len(slots) > 1:
        yield replace(machine, free_slots=(sum(slots),))
        for left in _without_parts(slots):
            if left:
                yield replace(machine, free_slots=left)
    for index, free in enumerate(slots):
        for fewer in dict.fromkeys((free // 2, free - 1)):
            if 0 <= fewer < free:
                yield replace(machine, free_slots=(*slots[:index], fewer, *slots[index + 1 :]))


def _rounded(market: Market) -> Iterator[Market]:
    """All values with fewer digits at once, then one after another."""
    for digits in (1, 2, 4):
        yield replace(market, bids=tuple(_rounded_bid(bid, digits) for bid in market.bids))
        for index, bid in enumerate(market.bids):
            yield _with_bid(market, index, _rounded_bid(bid, digits))


def _rounded_bid(bid: Bid, digits: int) -> Bid:
    rows = tuple(replace(row, value=_to_digits(row.value, digits)) for row in bid.rows)
    return replace(bid, rows=rows, empty_value=_to_digits(bid.empty_value, digits))


def _to_digits(value: float, digits: int) -> float:
    """Round a value to this many significant digits. A value with no more digits is unchanged."""
    return float(f"{value:.{digits}g}")
