"""Separation by column generation: weights that cut off a choice without places, or patterns that place it.

Groups of machines (single machines, or racks if gangs must be inside one) each hold one *pattern* of items. The linear
programme asks whether fractions of patterns cover what a choice asks for (cutting stock). If not, its duals weigh the
items such that the choice has more weight than all groups hold (docs/design/auction.md, "Places as certificates").

Example: two machines of 6 GPUs, two gangs of 4 and one of 3. A machine holds one gang of 4 or two of 3. The weights 2
and 1 give every machine at most 2, all together 4, and the choice 5.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from fractions import Fraction
from functools import partial
from itertools import accumulate
from math import lcm

import numpy as np
from numpy.typing import NDArray

from rm_plugin.solvers.exact import _core
from rm_plugin.solvers.exact.resources import Item
from themis.values import Value

MAX_FREE = 512
"""Free GPUs of a machine that the core's tables take."""

_MAX_TAKEN_BACK = 24
"""Patterns that a dive may take back before it ends."""

_DENOMINATOR, _MAX_SCALE = 12, 2_520
"""Duals are first read as fractions with small denominators, then in units of 1 / 2520."""

_COVERED, _TOO_MUCH = 0, 1
"""Answers of the core: fractions of patterns cover what is left; they cannot."""

Ints = NDArray[np.int32]
Longs = NDArray[np.int64]


class Asked(Value, frozen=True, kw_only=True):
    """What a choice asks for.

    Attributes:
        items: Count of each item, which stays whole on one machine.
        gangs: Count of gangs in single GPUs inside a rack, by size.
        singles: Single GPUs anywhere.
        pinned: Pinned GPUs by machine [machines].
    """

    items: Mapping[Item, int]
    gangs: Mapping[int, int]
    singles: int
    pinned: Ints


class Weights(Value, frozen=True, kw_only=True):
    """Whole weights of items, gangs by size, single GPUs, and of the pins in `Asked.pinned` by machine [machines]."""

    items: Mapping[Item, int]
    gangs: Mapping[int, int]
    single: int
    pins: Longs

    def asked_by(self, asked: Asked) -> int:
        """The weight of everything a choice asks for."""
        items = sum(self.items.get(item, 0) * count for item, count in asked.items.items())
        gangs = sum(self.gangs.get(size, 0) * count for size, count in asked.gangs.items())
        return items + gangs + self.single * asked.singles + int(self.pins[asked.pinned > 0].sum())


class Group(Value, frozen=True, kw_only=True):
    """Machines that hold one pattern together: their positions, free GPUs and slots in the core's arrays.

    Identical groups without pinned GPUs are one: `members` lists the machines of each in corresponding order, and the
    other fields describe the first.
    """

    members: tuple[tuple[int, ...], ...]
    machines: Ints
    free: Ints
    slot_start: Ints
    slot_free: Ints

    @property
    def times(self) -> int:
        """Number of identical groups."""
        return len(self.members)

    @classmethod
    def of(cls, members: Sequence[Sequence[int]], free: Ints, free_slots: Sequence[Sequence[int]]) -> Group:
        """Build identical groups of these machines, from the free GPUs of all machines and slots."""
        machines = members[0]
        slots = [free_slots[machine] for machine in machines]
        return cls(
            members=tuple(tuple(each) for each in members),
            machines=np.array(machines, dtype=np.int32),
            free=free[list(machines)].astype(np.int32),
            slot_start=np.array([*accumulate(map(len, slots), initial=0)], dtype=np.int32),
            slot_free=np.array([free for each in slots for free in each], dtype=np.int32),
        )


_Given = tuple[Ints, Ints, Ints, Ints, Longs, Ints, Ints, Longs, Ints, Longs, int]


class Scale:
    """Weights in the core's arrays, to weigh many groups."""

    def __init__(self, weights: Weights, pinned: Ints) -> None:
        items, gangs = sorted(weights.items), sorted(weights.gangs)
        self._numbers = len(items) + len(gangs) + 1
        self._pinned, self._pins = pinned, weights.pins
        self._weights: tuple[Ints, Ints, Longs, Ints, Longs, int] = (
            np.array([item.gpus for item in items], dtype=np.int32),
            np.array([item.in_slot for item in items], dtype=np.int32),
            np.array([weights.items[item] for item in items], dtype=np.int64),
            np.array(gangs, dtype=np.int32),
            np.array([weights.gangs[size] for size in gangs], dtype=np.int64),
            weights.single,
        )

    def most(self, group: Group) -> tuple[int, Ints]:
        """The most weight that a group holds, and the counts of items, gangs, single GPUs and pins that reach it."""
        count = np.empty(self._numbers + len(group.machines), dtype=np.int32)
        return _core.weigh(*self._given(group), count), count

    def lifted(self, group: Group, width: int) -> tuple[int, Ints]:
        """The most weight that a group holds, and the lifted weight of pinned GPUs [machines, width]."""
        taken = np.empty((len(group.machines), width), dtype=np.int32)
        return _core.lift(*self._given(group), taken), taken

    def _given(self, group: Group) -> _Given:
        pinned, pins = self._pinned[group.machines], self._pins[group.machines]
        return group.free, group.slot_start, group.slot_free, pinned, pins, *self._weights


class Pattern(Value, frozen=True, kw_only=True):
    """What one group holds: positions of its machines, count of each item, count of gangs by size."""

    machines: tuple[int, ...]
    items: Mapping[Item, int]
    gangs: Mapping[int, int]


Dive = Iterator[Callable[[], list[Pattern]]]
"""Lists of patterns to try, each longer than the one before. A list is built when it is called; few are needed."""


def separate(asked: Asked, groups: Sequence[Group], *, quick: bool = False) -> Weights | Dive | None:
    """Find weights that cut off a choice, or patterns that may place it.

    Args:
        asked: What the choice asks for.
        groups: The machines.
        quick: Only round the programme's solution down, which yields a single list of patterns.

    Returns:
        Whole weights by which the choice weighs more than all groups hold; or lists of patterns that cover it, the last
        pattern of each being the rest for all remaining groups; or None if only fractional weights exist.
    """
    if any(int(group.free.max(initial=0)) > MAX_FREE for group in groups):
        return None
    cover = _Cover(asked, groups)
    answer = cover.price()
    if answer == _COVERED:
        return _rounded(cover, groups) if quick else _dive(cover, groups)
    return _whole(cover, asked, groups) if answer == _TOO_MUCH else None


def _dive(cover: _Cover, groups: Sequence[Group]) -> Dive:
    """Whole patterns from fractions: fix the fullest, solve again, until nothing is left to place.

    A pattern after which the rest cannot be covered is taken back and forbidden.
    """
    fixed: list[tuple[int, Ints]] = []
    taken_back = 0
    while not cover.nothing_left() and taken_back <= _MAX_TAKEN_BACK:
        column, times = cover.fullest()
        if not times:
            return
        cover.fix(column, times)
        if cover.price() == _COVERED:
            fixed += [cover.column(column)] * times
            yield partial(_patterns, cover, groups, tuple(fixed), cover.left().tolist())
            continue
        cover.fix(column, -times)
        cover.forbid(column)
        taken_back += 1
        if cover.price() != _COVERED:
            return


def _rounded(cover: _Cover, groups: Sequence[Group]) -> Dive:
    """Every pattern as often as its fraction, rounded down. Few groups and few items remain."""
    fixed: list[tuple[int, Ints]] = []
    for column, times in cover.whole():
        cover.fix(column, times)
        fixed += [cover.column(column)] * times
    yield partial(_patterns, cover, groups, tuple(fixed), cover.left().tolist())


def _patterns(
    cover: _Cover, groups: Sequence[Group], fixed: Sequence[tuple[int, Ints]], left: Sequence[int]
) -> list[Pattern]:
    """Fixed patterns on the machines of their groups, and the rest on the machines of all other groups."""
    used = [0] * len(groups)
    patterns = []
    for number, count in fixed:
        patterns.append(cover.pattern(groups[number].members[used[number]], count.tolist()))
        used[number] += 1
    others = [each for group, number in zip(groups, used, strict=True) for each in group.members[number:]]
    rest = cover.pattern(tuple(machine for each in others for machine in each), left)
    return [*patterns, rest]


def _whole(cover: _Cover, asked: Asked, groups: Sequence[Group]) -> Weights | None:
    """The duals as small whole weights, or as finer ones if the small ones do not cut the choice off."""
    fractions = [Fraction(dual).limit_denominator(_DENOMINATOR) for dual in cover.duals.tolist()]
    scale = lcm(*(fraction.denominator for fraction in fractions))
    candidates = [cover.weights([float(f) for f in fractions], scale)] if scale <= _MAX_SCALE else []
    candidates.append(cover.weights(cover.duals.tolist(), _MAX_SCALE))
    for weights in candidates:
        weigher = Scale(weights, asked.pinned)
        held = sum(weigher.most(group)[0] * group.times for group in groups)
        if weights.asked_by(asked) > held:
            return weights
    return None


class _Cover:
    """The core's covering programme. Its demands are items, gangs, single GPUs and pins, in this order."""

    def __init__(self, asked: Asked, groups: Sequence[Group]) -> None:
        self._items, self._gangs = sorted(asked.items), sorted(asked.gangs)
        self._pins = np.flatnonzero(asked.pinned > 0)
        self._machines = len(asked.pinned)
        demands = [
            *(asked.items[item] for item in self._items),
            *(asked.gangs[size] for size in self._gangs),
            asked.singles,
            *([1] * len(self._pins)),
        ]
        self.duals = np.zeros(len(demands))
        pin_of = np.full(self._machines, -1, dtype=np.int32)
        pin_of[self._pins] = np.arange(len(self._pins))
        machines = _joined([group.machines for group in groups])
        slots = _joined([np.diff(group.slot_start) for group in groups])
        self._core = _core.cover(
            np.cumsum([0, *(len(group.machines) for group in groups)], dtype=np.int32),
            _joined([group.free for group in groups]),
            np.concatenate(([0], np.cumsum(slots))).astype(np.int32),
            _joined([group.slot_free for group in groups]),
            asked.pinned[machines],
            pin_of[machines],
            np.array([group.times for group in groups], dtype=np.int32),
            np.array([item.gpus for item in self._items], dtype=np.int32),
            np.array([item.in_slot for item in self._items], dtype=np.int32),
            np.array(self._gangs, dtype=np.int32),
            np.array(demands, dtype=np.int32),
        )

    def price(self) -> int:
        """Whether fractions of patterns cover what is left. Updates the duals."""
        return _core.cover_price(self._core, self.duals)

    def fullest(self) -> tuple[int, int]:
        """The pattern with the largest value in the last solution, and how often to fix it; 0 for none."""
        return _core.cover_fullest(self._core)

    def whole(self) -> list[tuple[int, int]]:
        """Patterns of the last solution with their values, rounded down; only those of 1 or more."""
        return _core.cover_whole(self._core)

    def fix(self, column: int, times: int) -> None:
        """Fix a pattern `times` times (negative: take it back). Demands and remaining groups shrink accordingly."""
        _core.cover_fix(self._core, column, times)

    def forbid(self, column: int) -> None:
        """Exclude a pattern from now on."""
        _core.cover_forbid(self._core, column)

    def column(self, column: int) -> tuple[int, Ints]:
        """A pattern's group, and what it covers of each demand."""
        numbers = np.empty(len(self.duals), dtype=np.int32)
        return _core.cover_pattern(self._core, column, numbers), numbers

    def left(self) -> Ints:
        """What is left of each demand."""
        return self.column(-1)[1]

    def nothing_left(self) -> bool:
        """Whether fixed patterns cover all demands except single GPUs."""
        left = self.left()
        left[len(self._items) + len(self._gangs)] = 0
        return bool((left <= 0).all())

    def weights(self, duals: Sequence[float], scale: int) -> Weights:
        """Duals of the demands as whole weights, rounded down."""
        whole = [int(max(0.0, dual) * scale + 1e-6) for dual in duals]
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

    def pattern(self, machines: tuple[int, ...], numbers: Sequence[int]) -> Pattern:
        """A pattern on these machines, from counts in the order of the demands."""
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


def _joined(parts: Sequence[Ints]) -> Ints:
    """Concatenate arrays; an empty array for none."""
    return np.concatenate([np.zeros(0, dtype=np.int32), *parts])
