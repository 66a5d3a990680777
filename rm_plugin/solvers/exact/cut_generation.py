"""Cuts: resources that forbid a choice without places, made as strong as possible for all other rows.

For a choice that best fit cannot place, `find_cut_or_places` solves a covering problem over patterns of machines, then
of racks (`separation`). Its duals are the weights of a cut; its patterns, made whole, are places. Cuts are lifted: the
pinned GPUs of every machine count as much as the cut stays valid with, not only those of this choice. Otherwise the
same cut would be found once for each choice of pins.
"""

from __future__ import annotations

import math
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import takewhile
from typing import TypeVar

import numpy as np
from msgspec.structs import replace

from rm_plugin.solvers.exact.market_arrays import Ints, MarketArrays
from rm_plugin.solvers.exact.resources import Item, Resource, item_of
from rm_plugin.solvers.exact.row_placement import RowPlacer, Searched
from rm_plugin.solvers.exact.separation import MAX_FREE, Asked, Dive, Group, Pattern, Scale, Weights, separate
from rm_plugin.solvers.kinds import Kind
from themis.cluster import Level

_FEW_STEPS, _MORE_STEPS = 5_000, 30_000
"""Steps of the search that places a pattern's items: first few for every list of patterns, then more."""

Each = TypeVar("Each")


def find_cut_or_places(
    market: MarketArrays, chosen: Ints, placer: RowPlacer, number: int, deadline_s: float = math.inf
) -> Resource | Searched | None:
    """Find a cut that a choice breaks, or places that best fit did not find.

    Patterns of single machines come first. Patterns of racks follow if gangs must lie inside a rack and the patterns of
    machines did not decide.

    Example: two machines of 6 GPUs, and a choice of two gangs of 4 and one of 3 within machines. The cut has weight 2
    for a gang of 4, 1 for a gang of 3, and a capacity of 4. The choice has weight 5 and breaks it.

    Args:
        market: The market.
        chosen: Rows of the choice.
        placer: Places rows of the market.
        number: How many cuts were found before; it names the cut.
        deadline_s: When to stop, on the monotonic clock. It is looked at before every list of patterns.

    Returns:
        None if fractions of patterns cover the choice, but no whole ones were found, at least not in time.
    """
    counts, left = market.rows.counts[chosen].sum(axis=0), placer.left_beside(chosen)
    requested = _requested(market, counts)
    answer = _over_machines(market, requested, left, number)
    if isinstance(answer, Resource):
        return answer
    answer = None if answer is None else _in_time(answer, deadline_s)
    if not any(kind.level is Level.RACK for kind in requested):
        dives = list(answer or ())
        return _by_last_patterns(placer, chosen, dives) or _by_any_patterns(placer, chosen, dives, deadline_s)
    # This takes a tenth of the time of what follows. On large clusters it usually succeeds, even with pinned GPUs.
    placed = _by_last_patterns(placer, chosen, answer)
    if placed is not None or time.monotonic() >= deadline_s:
        return placed
    over_racks = _over_racks(market, requested, left, number)
    return over_racks if isinstance(over_racks, Resource) else _by_any_patterns(placer, chosen, over_racks, deadline_s)


def find_cut_or_places_quickly(
    market: MarketArrays, chosen: Ints, placer: RowPlacer, number: int
) -> Resource | Searched | None:
    """As `find_cut_or_places`, with patterns of single machines only, and one list of them for places."""
    counts, left = market.rows.counts[chosen].sum(axis=0), placer.left_beside(chosen)
    requested = _requested(market, counts)
    answer = _over_machines(market, requested, left, number, quick=True)
    return answer if isinstance(answer, Resource) else _by_last_patterns(placer, chosen, answer)


def _by_last_patterns(
    placer: RowPlacer, chosen: Ints, dive: Iterable[Callable[[], list[Pattern]]] | None
) -> Searched | None:
    """Places by the last, longest list of a dive over machines, assigned to racks (`pattern_assignment`)."""
    last = deque(dive or (), maxlen=1)
    return placer.by_machine_patterns(chosen, last[0]()) if last else None


def _in_time(each: Iterable[Each], deadline_s: float) -> Iterator[Each]:
    """The elements that come before a deadline on the monotonic clock."""
    return takewhile(lambda _: time.monotonic() < deadline_s, each)


def _by_any_patterns(
    placer: RowPlacer, chosen: Ints, dive: Iterable[Callable[[], list[Pattern]]] | None, deadline_s: float
) -> Searched | None:
    """Places by the first list of a dive whose patterns can be placed; short searches for all lists, then long ones."""
    dives = []
    for make in _in_time(dive or (), deadline_s):
        patterns = make()
        dives.append(patterns)
        placed = placer.by_group_patterns(chosen, patterns, _FEW_STEPS)
        if placed is not None:
            return placed
    tried = (placer.by_group_patterns(chosen, patterns, _MORE_STEPS) for patterns in _in_time(dives, deadline_s))
    return next((each for each in tried if each is not None), None)


def _requested(market: MarketArrays, counts: Ints) -> dict[Kind, int]:
    """The kinds of gangs that a choice asks for, with their numbers."""
    return {kind: int(count) for kind, count in zip(market.kinds, counts, strict=True) if count}


def _over_machines(
    market: MarketArrays, requested: Mapping[Kind, int], left: Ints, number: int, *, quick: bool = False
) -> Resource | Dive | None:
    """Cover a choice by patterns of single machines. Returns a cut, a dive of pattern lists, or None."""
    items: Counter[Item] = Counter()
    for kind, count in requested.items():
        items[item_of(kind)] += kind.units * count
    slots = [machine.free_slots for machine in market.machines]
    alike: dict[tuple[int, tuple[int, ...]], list[list[int]]] = {}
    for place, key in enumerate(zip(left.tolist(), slots, strict=True)):
        alike.setdefault(key, []).append([place])
    groups = [Group.of(members, left, slots) for key, members in sorted(alike.items()) if key[0]]
    nothing = np.zeros(len(left), dtype=np.int32)
    answer = separate(Asked(items=items, gangs={}, singles=0, pinned=nothing), groups, quick=quick)
    if not isinstance(answer, Weights):
        return answer
    # A choice asks for no single GPUs here, so they weigh nothing.
    answer = replace(answer, single=0)
    if max(machine.free for machine in market.machines) > MAX_FREE:
        # The capacity of a cut counts whole machines, and one is too large for the core's tables.
        return None
    free = np.array([machine.free for machine in market.machines], dtype=np.int32)
    alike_free: dict[tuple[int, ...], list[list[int]]] = {}
    for place, each in enumerate(slots):
        alike_free.setdefault(each, []).append([place])
    return _cut(market, answer, [Group.of(members, free, slots) for members in alike_free.values()], nothing, number)


def _cut(market: MarketArrays, weights: Weights, groups: Sequence[Group], pinned: Ints, number: int) -> Resource:
    """The lifted cut of these weights. Its capacity is the most weight that all groups hold."""
    width = max(machine.free for machine in market.machines) + 1
    scale = Scale(weights, pinned)
    capacity = 0
    taken = np.empty((len(market.machines), width), dtype=np.int32)
    for group in groups:
        most, here = scale.lifted(group, width)
        capacity += most * group.times
        for members in group.members:
            taken[list(members)] = here
    by_kind = _by_kind(market.kinds, weights)
    return Resource(name=("cut", number), capacity=capacity, by_kind=by_kind, taken=taken)


def _over_racks(market: MarketArrays, requested: Mapping[Kind, int], left: Ints, number: int) -> Resource | Dive | None:
    """Cover a choice by patterns of racks. Returns as `_over_machines`."""
    gangs: Counter[int] = Counter()
    items: Counter[Item] = Counter()
    singles = 0
    for kind, count in requested.items():
        if kind.unit == 1 and kind.level is Level.RACK:
            gangs[kind.gpus] += count
        elif kind.unit == 1:
            singles += kind.gpus * count
        else:
            items[item_of(kind)] += kind.units * count
    free = np.array([machine.free for machine in market.machines], dtype=np.int32)
    pinned = free - left
    groups = _racks(market, free, pinned)
    weights = separate(Asked(items=items, gangs=gangs, singles=singles, pinned=pinned), groups)
    if not isinstance(weights, Weights):
        return weights
    return _cut(market, weights, groups, pinned, number)


def _racks(market: MarketArrays, free: Ints, pinned: Ints) -> list[Group]:
    """The racks as groups. Identical racks without pinned GPUs form one group."""
    members: dict[str, list[int]] = {}
    for place, machine in enumerate(market.machines):
        members.setdefault(machine.rack_id, []).append(place)
    slots = [machine.free_slots for machine in market.machines]
    alike: dict[tuple[object, ...], list[list[int]]] = {}
    for rack, places in members.items():
        ordered = sorted(places, key=lambda place: (slots[place], place))
        key = (rack if pinned[places].any() else "", tuple(slots[place] for place in ordered))
        alike.setdefault(key, []).append(ordered)
    return [Group.of(racks, free, slots) for racks in alike.values()]


def _by_kind(kinds: Sequence[Kind], weights: Weights) -> Ints:
    """The weight of a gang of each kind: the most weight that its GPUs could hold.

    A kind that the choice did not ask for may have weight too. Items of the same weight fit wherever such a gang fits.
    So no machine or rack holds more weight than before, and the cut stays valid.
    """
    whole = {item.gpus: weight for item, weight in weights.items.items() if not item.in_slot}
    inside = {item.gpus: weight for item, weight in weights.items.items() if item.in_slot}
    largest = max((kind.gpus for kind in kinds), default=0)
    machine = _max_weights([*whole.items(), (1, weights.single)], largest)
    slot = _max_weights([*whole.items(), *inside.items(), (1, weights.single)], largest)
    rack = _max_weights([*weights.gangs.items(), (1, weights.single)], largest)
    singles = _max_weights([(1, weights.single + whole.get(1, 0))], largest)
    by_kind = []
    for kind in kinds:
        units = kind.units * machine[kind.unit]
        if kind.level is Level.SLOT:
            by_kind.append(slot[kind.gpus])
        elif kind.level is Level.MACHINE:
            by_kind.append(machine[kind.gpus])
        elif kind.level is Level.RACK:
            by_kind.append(max(units, rack[kind.gpus]))
        else:
            by_kind.append(units if kind.unit > 1 else singles[kind.gpus])
    return np.array(by_kind, dtype=np.int32)


def _max_weights(items: Sequence[tuple[int, int]], largest: int) -> list[int]:
    """The most weight in g GPUs with any number of each item, for g = 0 .. `largest` (unbounded knapsack)."""
    best = [0] * (largest + 1)
    for gpus in range(1, largest + 1):
        best[gpus] = max([best[gpus - 1], *(best[gpus - size] + weight for size, weight in items if size <= gpus)])
    return best
