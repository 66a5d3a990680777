"""Assignment of patterns to machines, such that each gang in a rack finds all its units inside one rack.

Identical machines may swap patterns. Rack by rack, machines receive the patterns with the most units for rack gangs, as
long as these fill whole gangs. The rack's other machines receive the patterns with the fewest. Then each gang takes the
rack that it fills most tightly.

Example: two racks of two machines with 4 free GPUs each. Two patterns hold a unit of 4 of a rack gang, and two hold
single GPUs. The gang needs two units in one rack. So both machines of one rack receive the first patterns, and those of
the other rack receive the second ones.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from operator import itemgetter

import numpy as np

from rm_plugin.solvers.exact.market_arrays import Ints, MarketArrays
from rm_plugin.solvers.exact.resources import Item, item_of
from rm_plugin.solvers.exact.separation import Pattern
from rm_plugin.solvers.kinds import Kind
from themis.cluster import Level

IN_RACK, ON_MACHINE, IN_SLOT = -2, -1, 0
"""Where a part is placed, in the code of the core's placement search."""

Items = Mapping[Item, int]
Alike = tuple[int, tuple[int, ...]]
"""Free GPUs of a machine and of each slot. Machines with equal keys are interchangeable."""
Held = tuple[int, Items]
"""Units that a machine has for rack gangs, and what else it holds."""


def assign_patterns(market: MarketArrays, counts: Ints, left: Ints, patterns: Sequence[Pattern]) -> Ints | None:
    """Assign patterns to machines; returns parts of gangs (kind, machine, where, GPUs).

    Args:
        market: The market.
        counts: Gangs to place, by kind [kinds].
        left: Free GPUs by machine [machines].
        patterns: Patterns of single machines. Each names one of the interchangeable machines, no two the same.

    Returns:
        None if a gang finds no rack, or if the patterns do not hold everything.
    """
    asked = list(_rack_gangs(market, counts))
    for unit in sorted({kind.unit for kind, _ in asked} or {1}):
        gangs = [kind.units for kind, many in asked if kind.unit == unit for _ in range(many)]
        on_machine = _assigned(market, left, patterns, unit, gangs)
        hosted = _hosted(market, counts, left, on_machine)
        if hosted is not None:
            return parts_of(market, counts, on_machine, hosted)
    return None


def _rack_gangs(market: MarketArrays, counts: Ints) -> Iterator[tuple[Kind, int]]:
    """Kinds of the rack gangs that the choice asks for, largest first, with their counts."""
    asked = zip(market.kinds, counts.tolist(), strict=True)
    return iter(
        sorted(((k, n) for k, n in asked if n and k.level is Level.RACK), key=lambda each: (-each[0].gpus, each[0]))
    )


def _assigned(
    market: MarketArrays, left: Ints, patterns: Sequence[Pattern], unit: int, gangs: list[int]
) -> list[Items]:
    """Items by machine, such that racks host as many gangs as they can, largest first. `gangs` lists their units."""
    alike = list(zip(left.tolist(), (machine.free_slots for machine in market.machines), strict=True))
    held: dict[Alike, list[Held]] = {key: [] for key in alike}
    for pattern in patterns:
        key = alike[pattern.machines[0]]
        held[key].append((rack_units(pattern.items, key[0], unit), pattern.items))
    for key, count in Counter(alike).items():
        held[key] += [(rack_units({}, key[0], unit), {})] * (count - len(held[key]))
        held[key].sort(key=itemgetter(0))
    racks: dict[str, list[int]] = {}
    for place, machine in enumerate(market.machines):
        racks.setdefault(machine.rack_id, []).append(place)
    on_machine: list[Items] = [{}] * len(alike)
    for rack in sorted(racks):
        keys = [alike[place] for place in racks[rack]]
        richest = _fill_rack(keys, held, gangs)
        for place in racks[rack]:
            mine, rest = richest[alike[place]], held[alike[place]]
            on_machine[place] = mine.pop() if mine else rest.pop(0)[1]
    return on_machine


def _fill_rack(keys: Sequence[Alike], held: Mapping[Alike, list[Held]], gangs: list[int]) -> dict[Alike, list[Items]]:
    """Patterns for a rack's machines that fill as many gangs as they can. Removes both from `held` and `gangs`."""
    taken: dict[Alike, list[Items]] = {key: [] for key in keys}
    count = Counter(keys)
    offered = [(key, each) for key in count for each in held[key][-count[key] :]]
    most = sum(room for _, (room, _) in offered)
    wanted = 0
    for units in list(gangs):
        if wanted + units <= most:
            wanted += units
            gangs.remove(units)
    for key, each in sorted(offered, key=lambda offer: -offer[1][0]):
        room, items = each
        if 0 < room <= wanted:
            wanted -= room
            taken[key].append(items)
            held[key].remove(each)
    return taken


def rack_units(items: Items, free: int, unit: int) -> int:
    """Units that a machine has for rack gangs: whole items, or the GPUs that larger items leave."""
    if unit > 1:
        return items.get(Item(unit), 0)
    return free - sum(item.gpus * many for item, many in items.items() if item.gpus > 1)


def _hosted(
    market: MarketArrays, counts: Ints, left: Ints, on_machine: Sequence[Items]
) -> Counter[tuple[Kind, str]] | None:
    """Number of gangs of each kind by rack. Returns None if a gang finds no rack."""
    room: dict[int, Counter[str]] = {}
    hosted: Counter[tuple[Kind, str]] = Counter()
    for kind, many in _rack_gangs(market, counts):
        if kind.unit not in room:
            room[kind.unit] = Counter()
            for machine, free, items in zip(market.machines, left.tolist(), on_machine, strict=True):
                room[kind.unit][machine.rack_id] += rack_units(items, free, kind.unit)
        for _ in range(many):
            racks = [(units, rack) for rack, units in room[kind.unit].items() if units >= kind.units]
            if not racks:
                return None
            _, rack = min(racks)
            room[kind.unit][rack] -= kind.units
            hosted[kind, rack] += 1
    return hosted


def parts_of(
    market: MarketArrays, counts: Ints, on_machine: Sequence[Items], hosted: Counter[tuple[Kind, str]]
) -> Ints | None:
    """The parts, item by item: units of rack gangs first, then other gangs of such items. None if items are missing."""
    wanted: Counter[tuple[int, str]] = Counter()
    numbers: dict[Item, list[int]] = {}
    for number, (kind, many) in enumerate(zip(market.kinds, counts.tolist(), strict=True)):
        in_racks = kind.level is Level.RACK
        numbers.setdefault(item_of(kind), []).insert(0 if in_racks else len(numbers.get(item_of(kind), ())), number)
        if kind.unit > 1 and not in_racks:
            wanted[number, ""] = kind.units * many
    for (kind, rack), many in hosted.items():
        wanted[market.kinds.index(kind), rack] = kind.units * many if kind.unit > 1 else 0
    parts: list[tuple[int, int, int, int]] = []
    for place, items in enumerate(on_machine):
        for item, many in items.items():
            where, left = IN_SLOT if item.in_slot else ON_MACHINE, many
            for number in numbers[item]:
                rack = market.machines[place].rack_id if market.kinds[number].level is Level.RACK else ""
                here = min(left, wanted[number, rack])
                wanted[number, rack] -= here
                left -= here
                parts += [(number, place, where, item.gpus)] * here
    if any(wanted.values()):
        return None
    first = {machine.rack_id: place for place, machine in reversed(list(enumerate(market.machines)))}
    for (kind, rack), many in hosted.items():
        parts += [(market.kinds.index(kind), first[rack], IN_RACK, kind.gpus)] * many
    return np.array(parts, dtype=np.int32).reshape(-1, 4)
