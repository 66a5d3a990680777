"""Why a choice does not fit: a limit that it breaks and every feasible choice keeps, by column generation.

Groups of machines (single machines, or racks where gangs must lie inside one) each hold one pattern of items. If no mix
of patterns, not even a fractional one, makes up what a choice asks for, the duals of that programme weigh the items
such that the choice asks for more weight than all groups together can hold (cutting stock; auction.md, section 2).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import lcm

import highspy
import numpy as np
from numpy.typing import NDArray

from rm_plugin.solvers.exact import _core
from rm_plugin.solvers.exact.resources import Item

_MOST_FREE = 512
_ROUNDS = 60
_FINE = 1_000_000
_DENOMINATOR, _MOST_SCALE = 12, 2_520
_ENOUGH = 0.3
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

    `times` such groups are alike, and one stands for all; only groups without pinned GPUs are.
    """

    times: int
    machines: Ints
    free: Ints
    slot_start: Ints
    slot_free: Ints

    @classmethod
    def of(cls, machines: Sequence[int], free: Ints, free_slots: Sequence[Sequence[int]], times: int = 1) -> Group:
        """The group of these machines, with free GPUs by machine and by slot of all machines."""
        slots = [free_slots[machine] for machine in machines]
        return cls(
            times=times,
            machines=np.array(machines, dtype=np.int32),
            free=free[list(machines)].astype(np.int32),
            slot_start=np.cumsum([0, *map(len, slots)]).astype(np.int32),
            slot_free=np.array([free for each in slots for free in each], dtype=np.int32),
        )


def most_weight(group: Group, weights: Weights, pinned: Ints) -> tuple[int, Ints]:
    """The most weight that a group holds, and how many it then holds of each item, gang, single GPU and pin."""
    items, gangs = sorted(weights.items), sorted(weights.gangs)
    count = np.empty(len(items) + len(gangs) + 1 + len(group.machines), dtype=np.int32)
    most = _core.weigh(
        group.free,
        group.slot_start,
        group.slot_free,
        pinned[group.machines],
        weights.pins[group.machines],
        np.array([item.gpus for item in items], dtype=np.int32),
        np.array([item.in_slot for item in items], dtype=np.int32),
        np.array([weights.items[item] for item in items], dtype=np.int64),
        np.array(gangs, dtype=np.int32),
        np.array([weights.gangs[size] for size in gangs], dtype=np.int64),
        weights.single,
        count,
    )
    return most, count


def weights_against(asked: Asked, groups: Sequence[Group]) -> Weights | None:
    """Whole weights of which the choice asks for more than all groups hold; None when patterns make it up."""
    if any(int(group.free.max(initial=0)) > _MOST_FREE for group in groups):
        return None
    master = _Master(asked, groups)
    for _ in range(_ROUNDS):
        missing, duals, group_duals = master.solve()
        if missing < 1e-6:
            return None
        weights = master.weights(duals, _FINE)
        excess, added = weights.asked_by(asked), False
        for number, group in enumerate(groups):
            most, count = most_weight(group, weights, asked.pinned)
            excess -= most * group.times
            if most > group_duals[number] * _FINE + 1:
                master.add(number, count)
                added = True
        if excess > _ENOUGH * missing * _FINE or not added:
            whole = _whole(master, duals, asked, groups)
            if whole is not None or not added:
                return whole
    return None


def _whole(master: _Master, duals: Sequence[float], asked: Asked, groups: Sequence[Group]) -> Weights | None:
    """The duals as small whole weights, or finer ones where the small ones do not tell the choice apart."""
    fractions = [Fraction(dual).limit_denominator(_DENOMINATOR) for dual in duals]
    scale = lcm(*(fraction.denominator for fraction in fractions))
    candidates = [master.weights([float(f) for f in fractions], scale)] if scale <= _MOST_SCALE else []
    candidates.append(master.weights(duals, _MOST_SCALE))
    for weights in candidates:
        held = sum(most_weight(group, weights, asked.pinned)[0] * group.times for group in groups)
        if weights.asked_by(asked) > held:
            return weights
    return None


class _Master:
    """The programme over the patterns known so far: minimise what is missing of all that is asked for.

    Rows: items, gangs, single GPUs, pins by machine, then one a group that holds one pattern (or one a machine of a
    class of machines alike).
    """

    def __init__(self, asked: Asked, groups: Sequence[Group]) -> None:
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
        self._demands = len(demands)
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

    def solve(self) -> tuple[float, list[float], list[float]]:
        """What is missing, and the duals of demands and of groups, both 0 or more."""
        self._highs.run()
        duals = list(self._highs.getSolution().row_dual)
        missing = float(self._highs.getInfo().objective_function_value)
        return missing, [max(0.0, d) for d in duals[: self._demands]], [max(0.0, -d) for d in duals[self._demands :]]

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

    def add(self, number: int, count: Ints) -> None:
        """Add a pattern of a group: how many of each item, gang, single GPU and pin."""
        first = len(self._items) + len(self._gangs) + 1
        entries = {row: float(many) for row, many in enumerate(count[:first].tolist()) if many}
        for machine, many in zip(self._groups[number].machines.tolist(), count[first:].tolist(), strict=True):
            if many:
                entries[first + self._pin_row[machine]] = 1.0
        entries[self._demands + number] = 1.0
        index = np.array(list(entries), dtype=np.int32)
        self._highs.addCol(0.0, 0.0, highspy.kHighsInf, len(entries), index, np.array(list(entries.values())))
