"""Why a choice does not fit: a limit that it breaks and every feasible choice keeps, by column generation.

Groups of machines (single machines, or racks where gangs must lie inside one) each hold one pattern of items. If no mix
of patterns, not even a fractional one, makes up what a choice asks for, the duals of that programme weigh the items
such that the choice asks for more weight than all groups together can hold (cutting stock; auction.md, section 2).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import lcm

import highspy
import numpy as np
from numpy.typing import NDArray

from rm_plugin.solvers.exact import _core
from rm_plugin.solvers.exact.resources import Item

MOST_FREE = 512
_ROUNDS = 60
_MOST_TAKEN_BACK = 24
_THIN = 0.15
_FINE = 1_000_000
_DENOMINATOR, _MOST_SCALE = 12, 2_520
_ENOUGH = 0.6
"""A limit is taken as soon as it is broken by so much of what the best one can be broken by."""

Ints = NDArray[np.int32]


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What a choice asks for: items that stay whole, gangs in single GPUs inside a rack by size, single GPUs anywhere.

    `pinned` holds GPUs pinned by machine [machines].
    """

    items: Mapping[Item, int]
    gangs: Mapping[int, int]
    singles: int
    pinned: Ints


@dataclass(frozen=True, slots=True, kw_only=True)
class Weights:
    """Whole weights of what can be asked for; `pins` by machine [machines], of the GPUs in `Asked.pinned` there."""

    items: Mapping[Item, int]
    gangs: Mapping[int, int]
    single: int
    pins: NDArray[np.int64]

    def asked_by(self, asked: Asked) -> int:
        """The weight of all that is asked for."""
        items = sum(self.items.get(item, 0) * count for item, count in asked.items.items())
        gangs = sum(self.gangs.get(size, 0) * count for size, count in asked.gangs.items())
        return items + gangs + self.single * asked.singles + int(self.pins[asked.pinned > 0].sum())


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Machines that hold one pattern together: their positions, free GPUs and slots in the core's arrays.

    Groups alike, none of them with pinned GPUs, are one: `members` tells the machines of each, in like order, and the
    other fields those of the first.
    """

    members: tuple[tuple[int, ...], ...]
    machines: Ints
    free: Ints
    slot_start: Ints
    slot_free: Ints

    @property
    def times(self) -> int:
        """How many groups are alike."""
        return len(self.members)

    @classmethod
    def of(cls, members: Sequence[Sequence[int]], free: Ints, free_slots: Sequence[Sequence[int]]) -> Group:
        """Groups alike, each of these machines, with free GPUs by machine and by slot of all machines."""
        machines = members[0]
        slots = [free_slots[machine] for machine in machines]
        return cls(
            members=tuple(tuple(each) for each in members),
            machines=np.array(machines, dtype=np.int32),
            free=free[list(machines)].astype(np.int32),
            slot_start=np.cumsum([0, *map(len, slots)]).astype(np.int32),
            slot_free=np.array([free for each in slots for free in each], dtype=np.int32),
        )


class Scale:
    """Weights in the core's arrays, to weigh many groups with."""

    def __init__(self, weights: Weights, pinned: Ints) -> None:
        items, gangs = sorted(weights.items), sorted(weights.gangs)
        self._numbers = len(items) + len(gangs) + 1
        self._pinned, self._pins = pinned, weights.pins
        self._weights = (
            np.array([item.gpus for item in items], dtype=np.int32),
            np.array([item.in_slot for item in items], dtype=np.int32),
            np.array([weights.items[item] for item in items], dtype=np.int64),
            np.array(gangs, dtype=np.int32),
            np.array([weights.gangs[size] for size in gangs], dtype=np.int64),
            weights.single,
        )

    def most(self, group: Group) -> tuple[int, Ints]:
        """The most weight that a group holds, and how many it then holds of each item, gang, single GPU and pin."""
        count = np.empty(self._numbers + len(group.machines), dtype=np.int32)
        pinned, pins = self._pinned[group.machines], self._pins[group.machines]
        most = _core.weigh(group.free, group.slot_start, group.slot_free, pinned, pins, *self._weights, count)
        return most, count


@dataclass(frozen=True, slots=True, kw_only=True)
class Pattern:
    """What one group holds: machines by position, and how many of each item and of each gang."""

    machines: tuple[int, ...]
    items: Mapping[Item, int]
    gangs: Mapping[int, int]


class PatternMemory:
    """Patterns found before, by group: what machines could hold for one choice they can hold for the next.

    To begin with them saves most rounds of column generation. Groups with pinned GPUs are not remembered.
    """

    _MOST = 24

    def __init__(self) -> None:
        self._patterns: dict[tuple[object, ...], dict[tuple[object, ...], Pattern]] = {}

    def of(self, group: Group) -> list[Pattern]:
        """The newest patterns of a group."""
        return list(self._patterns.get(self._key(group), {}).values())[-self._MOST :]

    def note(self, group: Group, pattern: Pattern) -> None:
        """Remember a pattern; one that comes again counts as new."""
        known = self._patterns.setdefault(self._key(group), {})
        content = (tuple(sorted(pattern.items.items())), tuple(sorted(pattern.gangs.items())))
        known.pop(content, None)
        known[content] = pattern

    @staticmethod
    def _key(group: Group) -> tuple[object, ...]:
        return (group.members, group.free.tobytes())


def separate(
    asked: Asked, groups: Sequence[Group], memory: PatternMemory | None = None
) -> Weights | Iterator[list[Pattern]] | None:
    """Tell why a choice does not fit, or how it may.

    Args:
        asked: What the choice asks for.
        groups: The machines.
        memory: Patterns to begin with; those found are added.

    Returns:
        Whole weights of which the choice asks for more than all groups hold; or lists of patterns to try, which make up
        what it asks for, the last pattern of each being all that is left for all groups that are left; or None where
        weights exist in fractions only.
    """
    if any(int(group.free.max(initial=0)) > MOST_FREE for group in groups):
        return None
    master = _Master(asked, groups, memory or PatternMemory())
    duals = _price(master, asked, groups)
    return _dive(master, asked, groups) if duals is None else _whole(master, duals, asked, groups)


def _price(master: _Master, asked: Asked, groups: Sequence[Group]) -> Sequence[float] | None:
    """Column generation: duals by which too much is asked for, or None when patterns make up all that is left."""
    duals: Sequence[float] = []
    for _ in range(_ROUNDS):
        missing, duals, group_duals = master.solve()
        if missing < 1e-6:
            return None
        weights = master.weights(duals, _FINE)
        excess, added = master.weight_left(weights), False
        scale = Scale(weights, asked.pinned)
        for number, group in enumerate(groups):
            most, count = scale.most(group)
            excess -= most * master.times[number]
            if master.times[number] and most > group_duals[number] * _FINE + 1:
                added = master.add(number, count) or added
        if excess > _ENOUGH * missing * _FINE or not added:
            break
    return duals


def _dive(master: _Master, asked: Asked, groups: Sequence[Group]) -> Iterator[list[Pattern]]:
    """Whole patterns from fractions of them: fix the fullest, ask again, until nothing is left to place.

    A pattern that leaves too little is taken back and not used again; only so many are.
    """
    fixed: list[tuple[int, Ints]] = []
    taken_back = 0
    while not master.nothing_left() and taken_back <= _MOST_TAKEN_BACK:
        column, times = master.fullest()
        if not times:
            return
        master.fix(column, times)
        if _price(master, asked, groups) is None:
            fixed += [master.columns[column]] * times
            yield _patterns(master, groups, fixed)
            continue
        master.fix(column, -times)
        master.forbid(column)
        taken_back += 1
        if _price(master, asked, groups) is not None:
            return


def _patterns(master: _Master, groups: Sequence[Group], fixed: Sequence[tuple[int, Ints]]) -> list[Pattern]:
    """Fixed patterns on the machines of their groups, and what is left on those of all other groups."""
    used = [0] * len(groups)
    patterns = []
    for number, count in fixed:
        patterns.append(master.pattern(groups[number].members[used[number]], count.tolist()))
        used[number] += 1
    others = [each for group, number in zip(groups, used, strict=True) for each in group.members[number:]]
    rest = master.pattern(tuple(machine for each in others for machine in each), master.left)
    return [*patterns, rest]


def _whole(master: _Master, duals: Sequence[float], asked: Asked, groups: Sequence[Group]) -> Weights | None:
    """The duals as small whole weights, or finer ones where the small ones do not tell the choice apart."""
    fractions = [Fraction(dual).limit_denominator(_DENOMINATOR) for dual in duals]
    scale = lcm(*(fraction.denominator for fraction in fractions))
    candidates = [master.weights([float(f) for f in fractions], scale)] if scale <= _MOST_SCALE else []
    candidates.append(master.weights(duals, _MOST_SCALE))
    for weights in candidates:
        weigher = Scale(weights, asked.pinned)
        held = sum(weigher.most(group)[0] * group.times for group in groups)
        if weights.asked_by(asked) > held:
            return weights
    return None


class _Master:
    """The programme over the patterns known so far: minimise what is missing of all that is asked for.

    Rows: items, gangs, single GPUs, pins by machine, then one a group that holds one pattern (or one a machine of a
    class of machines alike).
    """

    def __init__(self, asked: Asked, groups: Sequence[Group], memory: PatternMemory) -> None:
        self.times = [group.times for group in groups]
        self.columns: list[tuple[int, Ints]] = []
        self._forbidden: set[tuple[int, bytes]] = set()
        self._items, self._gangs = sorted(asked.items), sorted(asked.gangs)
        self._pins = np.flatnonzero(asked.pinned > 0)
        self._pin_row = {int(machine): number for number, machine in enumerate(self._pins)}
        self._machines = len(asked.pinned)
        self._groups = groups
        demands = [
            *(asked.items[item] for item in self._items),
            *(asked.gangs[size] for size in self._gangs),
            asked.singles,
            *([1] * len(self._pins)),
        ]
        self.left = demands
        self.demands = len(demands)
        self._highs = highspy.Highs()  # type: ignore[no-untyped-call]
        self._highs.setOptionValue("output_flag", False)
        self._highs.setOptionValue("threads", 1)
        self._highs.setOptionValue("presolve", "off")
        none, infinity = (0, np.zeros(0, np.int32), np.zeros(0)), highspy.kHighsInf
        for demand in demands:
            self._highs.addRow(float(demand), infinity, *none)
        for times in (group.times for group in groups):
            self._highs.addRow(-infinity, float(times), *none)
        for row in range(len(demands)):
            self._highs.addCol(1.0, 0.0, infinity, 1, np.array([row], np.int32), np.ones(1))
        self._memory = memory
        self._alone = [not asked.pinned[group.machines].any() for group in groups]
        self._recall()

    def _recall(self) -> None:
        """Begin with what is remembered of the groups, as far as it is asked for."""
        for number, group in enumerate(self._groups):
            known: dict[bytes, Ints] = {}
            for pattern in self._memory.of(group) if self._alone[number] else ():
                count = np.zeros(len(self._items) + len(self._gangs) + 1 + len(group.machines), dtype=np.int32)
                count[: len(self._items)] = [pattern.items.get(item, 0) for item in self._items]
                count[len(self._items) :][: len(self._gangs)] = [pattern.gangs.get(size, 0) for size in self._gangs]
                known[count.tobytes()] = count
            for count in known.values():
                self._add_column(number, count)

    def solve(self) -> tuple[float, list[float], list[float]]:
        """What is missing, and the duals of demands and of groups, both 0 or more."""
        self._highs.run()
        duals = list(self._highs.getSolution().row_dual)
        missing = float(self._highs.getInfo().objective_function_value)
        return missing, [max(0.0, d) for d in duals[: self.demands]], [max(0.0, -d) for d in duals[self.demands :]]

    def weights(self, duals: Sequence[float], scale: int) -> Weights:
        """Duals of the demands as whole weights, rounded down."""
        whole = [int(dual * scale + 1e-6) for dual in duals]
        gangs = len(self._items)
        single = gangs + len(self._gangs)
        pins = np.zeros(self._machines, dtype=np.int64)
        pins[self._pins] = whole[single + 1 :]
        return Weights(
            items=dict(zip(self._items, whole[:gangs], strict=True)),
            gangs=dict(zip(self._gangs, whole[gangs:single], strict=True)),
            single=whole[single],
            pins=pins,
        )

    def add(self, number: int, count: Ints) -> bool:
        """Add a pattern of a group: how many of each item, gang, single GPU and pin; False for a forbidden one."""
        if (number, count.tobytes()) in self._forbidden:
            return False
        self._add_column(number, count)
        if self._alone[number]:
            self._memory.note(self._groups[number], self.pattern((), count.tolist()))
        return True

    def _add_column(self, number: int, count: Ints) -> None:
        first = len(self._items) + len(self._gangs) + 1
        entries = {row: float(many) for row, many in enumerate(count[:first].tolist()) if many}
        for machine, many in zip(self._groups[number].machines.tolist(), count[first:].tolist(), strict=True):
            if many:
                entries[first + self._pin_row[machine]] = 1.0
        entries[self.demands + number] = 1.0
        index = np.array(list(entries), dtype=np.int32)
        self._highs.addCol(0.0, 0.0, highspy.kHighsInf, len(entries), index, np.array(list(entries.values())))
        self.columns.append((number, count.copy()))

    def weight_left(self, weights: Weights) -> int:
        """The weight of what is still asked for."""
        whole = [
            *(weights.items[item] for item in self._items),
            *(weights.gangs[size] for size in self._gangs),
            weights.single,
            *weights.pins[self._pins].tolist(),
        ]
        return sum(weight * max(0, left) for weight, left in zip(whole, self.left, strict=True))

    def nothing_left(self) -> bool:
        """True when all that is asked for, single GPUs aside, is made up by fixed patterns."""
        single = len(self._items) + len(self._gangs)
        return all(left <= 0 for row, left in enumerate(self.left) if row != single)

    def fullest(self) -> tuple[int, int]:
        """The pattern that the last solution takes most of, and how often to fix it: 0 for none."""
        values = np.array(self._highs.getSolution().col_value)[self.demands :]
        if not len(values) or values.max() < 1e-6:
            return 0, 0
        # One that holds more than is left wastes GPUs that others may need.
        tight = [column for column, (_, count) in enumerate(self.columns) if self._within_left(count)]
        best = max(tight, key=values.__getitem__, default=0)
        if values[best] < _THIN:
            best = int(values.argmax())
        return best, max(1, int(values[best] + 1e-6))

    def _within_left(self, count: Ints) -> bool:
        first = len(self._items) + len(self._gangs)
        return all(many <= left for many, left in zip(count[:first].tolist(), self.left, strict=False))

    def forbid(self, column: int) -> None:
        """Use a pattern no more."""
        number, count = self.columns[column]
        self._forbidden.add((number, count.tobytes()))
        self._highs.changeColBounds(self.demands + column, 0.0, 0.0)

    def fix(self, column: int, times: int) -> None:
        """Take a pattern so many times (or back): less is asked for, and less groups are left."""
        number, count = self.columns[column]
        first = len(self._items) + len(self._gangs) + 1
        self.times[number] -= times
        self._highs.changeRowBounds(self.demands + number, -highspy.kHighsInf, float(self.times[number]))
        rows = {row: many for row, many in enumerate(count[:first].tolist()) if many}
        for machine, many in zip(self._groups[number].machines.tolist(), count[first:].tolist(), strict=True):
            if many:
                rows[first + self._pin_row[machine]] = 1
        for row, many in rows.items():
            self.left[row] -= many * times
            self._highs.changeRowBounds(row, float(max(0, self.left[row])), highspy.kHighsInf)

    def pattern(self, machines: tuple[int, ...], numbers: Sequence[int]) -> Pattern:
        """The pattern of so many items and gangs (a demand's order) on these machines."""
        gangs = len(self._items)
        return Pattern(
            machines=machines,
            items={item: many for item, many in zip(self._items, numbers[:gangs], strict=True) if many > 0},
            gangs={
                size: many
                for size, many in zip(self._gangs, numbers[gangs : gangs + len(self._gangs)], strict=True)
                if many > 0
            },
        )
