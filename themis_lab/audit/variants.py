"""Variants of a market: shuffled, scaled, or with a changed bid or machine."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import TypeVar

from msgspec.structs import replace

from themis.bids import Bid, BidRow, FreeMachine, Market
from themis_lab.simulator.agents import rows_times

Item = TypeVar("Item")


def shuffled(market: Market, rng: random.Random) -> Market:
    """The same market with bidders, rows, gangs within rows, pinned gangs and machines in another order."""
    bids = [replace(bid, rows=_mixed([_turned(row, rng) for row in bid.rows], rng)) for bid in market.bids]
    return replace(market, machines=_mixed(market.machines, rng), bids=_mixed(bids, rng))


def scaled(bid: Bid, factor: float) -> Bid:
    """A bid with all values multiplied by a factor, including that of the empty bundle."""
    return replace(rows_times(bid, factor), empty_value=bid.empty_value * factor)


def with_bid(market: Market, bid: Bid) -> Market:
    """The market with the bid of one app replaced."""
    return replace(market, bids=tuple(bid if other.app_id == bid.app_id else other for other in market.bids))


def with_machine(market: Market, machine: FreeMachine) -> Market:
    """The market with one machine replaced."""
    machines = tuple(machine if other.machine_id == machine.machine_id else other for other in market.machines)
    return replace(market, machines=machines)


def with_free_gpu(machine: FreeMachine) -> FreeMachine:
    """The machine with one more free GPU, in its first slot."""
    first, *rest = machine.free_slots or (0,)
    return replace(machine, free_slots=(first + 1, *rest))


def _turned(row: BidRow, rng: random.Random) -> BidRow:
    return replace(row, gangs=_mixed(row.gangs, rng), pinned_gangs=_mixed(row.pinned_gangs, rng))


def _mixed(items: Sequence[Item], rng: random.Random) -> tuple[Item, ...]:
    order = list(items)
    rng.shuffle(order)
    return tuple(order)
