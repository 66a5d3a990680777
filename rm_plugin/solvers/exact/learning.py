"""Limits learnt from choices that do not fit, made as strong as they can be for all other rows."""

from __future__ import annotations

import math
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import takewhile
from typing import TypeVar

import numpy as np

from rm_plugin.solvers.exact.places import Places, Searched
from rm_plugin.solvers.exact.resources import Item, Resource, item_of
from rm_plugin.solvers.exact.rows import Ints, MarketArrays
from rm_plugin.solvers.exact.separation import MOST_FREE, Asked, Dive, Group, Pattern, Scale, Weights, separate
from rm_plugin.solvers.kinds import Kind
from themis.cluster import Level

_FEW_STEPS, _MORE_STEPS = 5_000, 30_000

Each = TypeVar("Each")


def settle(
    market: MarketArrays, chosen: Ints, places: Places, number: int, deadline_s: float = math.inf
) -> Resource | Searched | None:
    """Settle a choice that best fit found no places for: a limit that it breaks, or places.

    Over single machines first; over racks where gangs must lie inside one and the machines' patterns do not tell.

    Args:
        market: The market.
        chosen: Rows of the choice.
        places: The market's machines.
        number: How many limits were learnt before.
        deadline_s: When to stop, on the monotonic clock, which is looked at before every list of patterns.

    Returns:
        None where fractions of patterns make the choice up, but whole ones were not found to, at least not in time.
    """
    counts, left = market.rows.counts[chosen].sum(axis=0), places.left_beside(chosen)
    asked = {kind: int(count) for kind, count in zip(market.kinds, counts, strict=True) if count}
    answer = _over_machines(market, asked, left, number)
    if isinstance(answer, Resource):
        return answer
    answer = None if answer is None else _in_time(answer, deadline_s)
    if not any(kind.level is Level.RACK for kind in asked):
        dives = list(answer or ())
        return _dealt(places, chosen, dives) or _made_up(places, chosen, dives, deadline_s)
    # A tenth as dear as what follows; on large clusters it mostly finds places, even where pins make machines unlike.
    placed = _dealt(places, chosen, answer)
    if placed is not None or time.monotonic() >= deadline_s:
        return placed
    over_racks = _over_racks(market, asked, left, number)
    return over_racks if isinstance(over_racks, Resource) else _made_up(places, chosen, over_racks, deadline_s)


def settle_quickly(market: MarketArrays, chosen: Ints, places: Places, number: int) -> Resource | Searched | None:
    """As `settle`, but over single machines alone, and for places by one list of patterns."""
    counts, left = market.rows.counts[chosen].sum(axis=0), places.left_beside(chosen)
    asked = {kind: int(count) for kind, count in zip(market.kinds, counts, strict=True) if count}
    answer = _over_machines(market, asked, left, number, quick=True)
    return answer if isinstance(answer, Resource) else _dealt(places, chosen, answer)


def _dealt(places: Places, chosen: Ints, dive: Iterable[Callable[[], list[Pattern]]] | None) -> Searched | None:
    """Places by the last patterns of a dive over machines, which are the most."""
    last = deque(dive or (), maxlen=1)
    return places.dealt(chosen, last[0]()) if last else None


def _in_time(each: Iterable[Each], deadline_s: float) -> Iterator[Each]:
    """What comes before a time on the monotonic clock."""
    return takewhile(lambda _: time.monotonic() < deadline_s, each)


def _made_up(
    places: Places, chosen: Ints, dive: Iterable[Callable[[], list[Pattern]]] | None, deadline_s: float
) -> Searched | None:
    """Places by the first patterns of a dive with which a search finds them, a short one for all before long ones."""
    dives = []
    for make in _in_time(dive or (), deadline_s):
        patterns = make()
        dives.append(patterns)
        placed = places.made_up(chosen, patterns, _FEW_STEPS)
        if placed is not None:
            return placed
    tried = (places.made_up(chosen, patterns, _MORE_STEPS) for patterns in _in_time(dives, deadline_s))
    return next((each for each in tried if each is not None), None)


def _over_machines(
    market: MarketArrays, asked: Mapping[Kind, int], left: Ints, number: int, *, quick: bool = False
) -> Resource | Dive | None:
    items: Counter[Item] = Counter()
    for kind, count in asked.items():
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
    # No single GPUs were asked for, and none are weighed below.
    answer = replace(answer, single=0)
    if max(machine.free for machine in market.machines) > MOST_FREE:
        # Only what is pinned left little enough of such a machine to be weighed.
        return None
    free = np.array([machine.free for machine in market.machines], dtype=np.int32)
    alike_free: dict[tuple[int, ...], list[list[int]]] = {}
    for place, each in enumerate(slots):
        alike_free.setdefault(each, []).append([place])
    return _limit(market, answer, [Group.of(members, free, slots) for members in alike_free.values()], nothing, number)


def _limit(market: MarketArrays, weights: Weights, groups: Sequence[Group], pinned: Ints, number: int) -> Resource:
    """The limit of these weights over these groups. Pins count as much as they may, not only those of the choice."""
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
    return Resource(name=("learnt", number), capacity=capacity, by_kind=by_kind, taken=taken)


def _over_racks(market: MarketArrays, asked: Mapping[Kind, int], left: Ints, number: int) -> Resource | Dive | None:
    gangs: Counter[int] = Counter()
    items: Counter[Item] = Counter()
    singles = 0
    for kind, count in asked.items():
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
    return _limit(market, weights, groups, pinned, number)


def _racks(market: MarketArrays, free: Ints, pinned: Ints) -> list[Group]:
    """The racks as groups; those alike and without pinned GPUs are one."""
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
    """The weight of a gang of each kind: the most that can be put where it would lie.

    To weigh more kinds than the choice asked for costs nothing: wherever such a gang lies, items of the same weight
    could lie instead, so no machine or rack holds more weight than before.
    """
    whole = {item.gpus: weight for item, weight in weights.items.items() if not item.in_slot}
    inside = {item.gpus: weight for item, weight in weights.items.items() if item.in_slot}
    largest = max((kind.gpus for kind in kinds), default=0)
    machine = _filled([*whole.items(), (1, weights.single)], largest)
    slot = _filled([*whole.items(), *inside.items(), (1, weights.single)], largest)
    rack = _filled([*weights.gangs.items(), (1, weights.single)], largest)
    singles = _filled([(1, weights.single + whole.get(1, 0))], largest)
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


def _filled(items: Sequence[tuple[int, int]], most: int) -> list[int]:
    """The most weight in g GPUs, any number of each item (unbounded knapsack), for g = 0 .. most."""
    best = [0] * (most + 1)
    for room in range(1, most + 1):
        best[room] = max([best[room - 1], *(best[room - size] + weight for size, weight in items if size <= room)])
    return best
