"""Why a choice does not fit: a limit that it breaks and every feasible choice keeps, by column generation.

Groups of machines (single machines, or racks where gangs must lie inside one) each hold one pattern of items. If no mix
of patterns, not even a fractional one, makes up what a choice asks for, the duals of that programme weigh the items
such that the choice asks for more weight than all groups together can hold (cutting stock; auction.md, section 2).
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
_MOST_TAKEN_BACK = 24
_DENOMINATOR, _MOST_SCALE = 12, 2_520
_MADE_UP, _TOO_MUCH = 0, 1

Ints = NDArray[np.int32]
Longs = NDArray[np.int64]


class Asked(Value, frozen=True, kw_only=True):
    """What a choice asks for: items that stay whole, gangs in single GPUs inside a rack by size, single GPUs anywhere.

    `pinned` holds GPUs pinned by machine [machines].
    """

    items: Mapping[Item, int]
    gangs: Mapping[int, int]
    singles: int
    pinned: Ints


class Weights(Value, frozen=True, kw_only=True):
    """Whole weights of what can be asked for; `pins` by machine [machines], of the GPUs in `Asked.pinned` there."""

    items: Mapping[Item, int]
    gangs: Mapping[int, int]
    single: int
    pins: Longs

    def asked_by(self, asked: Asked) -> int:
        """The weight of all that is asked for."""
        items = sum(self.items.get(item, 0) * count for item, count in asked.items.items())
        gangs = sum(self.gangs.get(size, 0) * count for size, count in asked.gangs.items())
        return items + gangs + self.single * asked.singles + int(self.pins[asked.pinned > 0].sum())


class Group(Value, frozen=True, kw_only=True):
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
            slot_start=np.array([*accumulate(map(len, slots), initial=0)], dtype=np.int32),
            slot_free=np.array([free for each in slots for free in each], dtype=np.int32),
        )


_Given = tuple[Ints, Ints, Ints, Ints, Longs, Ints, Ints, Longs, Ints, Longs, int]


class Scale:
    """Weights in the core's arrays, to weigh many groups with."""

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
        """The most weight that a group holds, and how many it then holds of each item, gang, single GPU and pin."""
        count = np.empty(self._numbers + len(group.machines), dtype=np.int32)
        return _core.weigh(*self._given(group), count), count

    def lifted(self, group: Group, width: int) -> tuple[int, Ints]:
        """The most weight that a group holds, and what pinned GPUs may count as beside it [machines, width]."""
        taken = np.empty((len(group.machines), width), dtype=np.int32)
        return _core.lift(*self._given(group), taken), taken

    def _given(self, group: Group) -> _Given:
        pinned, pins = self._pinned[group.machines], self._pins[group.machines]
        return group.free, group.slot_start, group.slot_free, pinned, pins, *self._weights


class Pattern(Value, frozen=True, kw_only=True):
    """What one group holds: machines by position, and how many of each item and of each gang."""

    machines: tuple[int, ...]
    items: Mapping[Item, int]
    gangs: Mapping[int, int]


Dive = Iterator[Callable[[], list[Pattern]]]
"""Lists of patterns to try, each longer than the one before; made when called, for most are not looked at."""


def separate(asked: Asked, groups: Sequence[Group], *, quick: bool = False) -> Weights | Dive | None:
    """Tell why a choice does not fit, or how it may.

    Args:
        asked: What the choice asks for.
        groups: The machines.
        quick: Only round the programme's solution down; the patterns to try are one list then.

    Returns:
        Whole weights of which the choice asks for more than all groups hold; or lists of patterns to try, which make up
        what it asks for, the last pattern of each being all that is left for all groups that are left; or None where
        weights exist in fractions only.
    """
    if any(int(group.free.max(initial=0)) > MAX_FREE for group in groups):
        return None
    cover = _Cover(asked, groups)
    answer = cover.price()
    if answer == _MADE_UP:
        return _rounded(cover, groups) if quick else _dive(cover, groups)
    return _whole(cover, asked, groups) if answer == _TOO_MUCH else None


def _dive(cover: _Cover, groups: Sequence[Group]) -> Dive:
    """Whole patterns from fractions of them: fix the fullest, ask again, until nothing is left to place.

    A pattern that leaves too little is taken back and not used again; only so many are.
    """
    fixed: list[tuple[int, Ints]] = []
    taken_back = 0
    while not cover.nothing_left() and taken_back <= _MOST_TAKEN_BACK:
        column, times = cover.fullest()
        if not times:
            return
        cover.fix(column, times)
        if cover.price() == _MADE_UP:
            fixed += [cover.column(column)] * times
            yield partial(_patterns, cover, groups, tuple(fixed), cover.left().tolist())
            continue
        cover.fix(column, -times)
        cover.forbid(column)
        taken_back += 1
        if cover.price() != _MADE_UP:
            return


def _rounded(cover: _Cover, groups: Sequence[Group]) -> Dive:
    """Every pattern as often as its fraction is whole: few groups and little of what is asked for are left."""
    fixed: list[tuple[int, Ints]] = []
    for column, times in cover.whole():
        cover.fix(column, times)
        fixed += [cover.column(column)] * times
    yield partial(_patterns, cover, groups, tuple(fixed), cover.left().tolist())


def _patterns(
    cover: _Cover, groups: Sequence[Group], fixed: Sequence[tuple[int, Ints]], left: Sequence[int]
) -> list[Pattern]:
    """Fixed patterns on the machines of their groups, and what is left on those of all other groups."""
    used = [0] * len(groups)
    patterns = []
    for number, count in fixed:
        patterns.append(cover.pattern(groups[number].members[used[number]], count.tolist()))
        used[number] += 1
    others = [each for group, number in zip(groups, used, strict=True) for each in group.members[number:]]
    rest = cover.pattern(tuple(machine for each in others for machine in each), left)
    return [*patterns, rest]


def _whole(cover: _Cover, asked: Asked, groups: Sequence[Group]) -> Weights | None:
    """The duals as small whole weights, or finer ones where the small ones do not tell the choice apart."""
    fractions = [Fraction(dual).limit_denominator(_DENOMINATOR) for dual in cover.duals.tolist()]
    scale = lcm(*(fraction.denominator for fraction in fractions))
    candidates = [cover.weights([float(f) for f in fractions], scale)] if scale <= _MOST_SCALE else []
    candidates.append(cover.weights(cover.duals.tolist(), _MOST_SCALE))
    for weights in candidates:
        weigher = Scale(weights, asked.pinned)
        held = sum(weigher.most(group)[0] * group.times for group in groups)
        if weights.asked_by(asked) > held:
            return weights
    return None


class _Cover:
    """The core's cover of what is asked for: items, gangs, single GPUs and pins, each by its number there."""

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
        """Whether patterns make up all that is left; the duals tell why not."""
        return _core.cover_price(self._core, self.duals)

    def fullest(self) -> tuple[int, int]:
        """The pattern that the last solution takes most of, and how often to fix it: 0 for none."""
        return _core.cover_fullest(self._core)

    def whole(self) -> list[tuple[int, int]]:
        """The patterns that the last solution takes at least once, and how often, rounded down."""
        return _core.cover_whole(self._core)

    def fix(self, column: int, times: int) -> None:
        """Take a pattern so many times (or back): less is asked for, and less groups are left."""
        _core.cover_fix(self._core, column, times)

    def forbid(self, column: int) -> None:
        """Use a pattern no more."""
        _core.cover_forbid(self._core, column)

    def column(self, column: int) -> tuple[int, Ints]:
        """A pattern's group, and how much it covers of each demand."""
        numbers = np.empty(len(self.duals), dtype=np.int32)
        return _core.cover_pattern(self._core, column, numbers), numbers

    def left(self) -> Ints:
        """What is still asked for of each demand."""
        return self.column(-1)[1]

    def nothing_left(self) -> bool:
        """True when all that is asked for, single GPUs aside, is made up by fixed patterns."""
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


def _joined(parts: Sequence[Ints]) -> Ints:
    """One array of several, or of none."""
    return np.concatenate([np.zeros(0, dtype=np.int32), *parts])
