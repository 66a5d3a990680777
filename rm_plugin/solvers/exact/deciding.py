"""Whether a choice fits, decided by one integer programme over patterns of machines: the last resort before all rows.

A column says how many machines of a rack, of those alike, hold a pattern, or how many gangs of a kind a rack hosts.
That has some hundred columns where a programme over machines and gangs has thousands, and next to no symmetry.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from rm_plugin.solvers.exact.dealing import Alike, Items, parts_of, room_of
from rm_plugin.solvers.exact.resources import Item, item_of
from rm_plugin.solvers.exact.rows import Ints, MarketArrays
from rm_plugin.solvers.kinds import Kind
from themis.cluster import Level

if TYPE_CHECKING:
    import highspy

_MOST_COLUMNS = 20_000
_MOST_NODES = 1_000
"""Of branch and bound, in place of seconds: on a busy machine the answer has to be the same."""
_MOST_STEPS = 10_000
"""Of the simplex for the relaxation, which no number of nodes bounds: HiGHS knows no such limit within a search."""
_TOLERANCE = 1e-9
_MOST_TRIES = 50_000
"""Of gangs on a machine, for all patterns together: where slots are unlike, there are more ways than can be tried."""
_LOOK_EVERY = 500


class _TooManyError(Exception):
    """There are too many patterns, or they take too long: not decided."""


class _Patience:
    """How many tries are left, and whether there is time."""

    def __init__(self, time_limit_s: float) -> None:
        self._deadline_s = time.monotonic() + time_limit_s
        self.tries = 0

    def spend(self) -> None:
        """One more try; raises _TooManyError when that is too many."""
        self.tries += 1
        late = self.tries % _LOOK_EVERY == 0 and time.monotonic() > self._deadline_s
        if late or self.tries > _MOST_TRIES:
            raise _TooManyError

    @property
    def left_s(self) -> float:
        """Seconds until the deadline."""
        return max(0.0, self._deadline_s - time.monotonic())


def decide(market: MarketArrays, counts: Ints, left: Ints, time_limit_s: float) -> Ints | bool | None:
    """Places for gangs, as parts (kind, machine, where, GPUs); False where there are none, None where not decided.

    Args:
        market: The market.
        counts: Gangs to place, by kind [kinds].
        left: Free GPUs by machine [machines].
        time_limit_s: Seconds for patterns and programme together.
    """
    asked = {kind: many for kind, many in zip(market.kinds, counts.tolist(), strict=True) if many}
    patience = _Patience(time_limit_s)
    try:
        programme = _Programme(market, asked, left, patience)
    except _TooManyError:
        return None
    if programme.columns > _MOST_COLUMNS:
        return None
    answer = programme.solve(patience.left_s)
    if not isinstance(answer, list):
        return answer
    on_machine, hosted = programme.read(answer)
    return parts_of(market, counts, on_machine, hosted) if _has_room(market, left, on_machine, hosted) else None


def _has_room(market: MarketArrays, left: Ints, on_machine: Sequence[Items], hosted: Counter[tuple[Kind, str]]) -> bool:
    """Whether every rack has room for the gangs in single GPUs that it hosts."""
    room: Counter[str] = Counter()
    for machine, free, items in zip(market.machines, left.tolist(), on_machine, strict=True):
        room[machine.rack_id] += room_of(items, free, 1)
    for (kind, rack), many in hosted.items():
        room[rack] -= kind.gpus * many if kind.unit == 1 else 0
    return all(gpus >= 0 for gpus in room.values())


@dataclass(slots=True)
class _Row:
    """A row of the programme: at least or at most so much of its columns."""

    least: float = -math.inf
    most: float = math.inf
    parts: dict[int, float] = field(default_factory=dict)


class _Programme:
    """Columns: patterns by rack and machines alike, then gangs by kind and rack."""

    def __init__(self, market: MarketArrays, asked: dict[Kind, int], left: Ints, patience: _Patience) -> None:
        self._market, self._asked = market, asked
        self._alike: dict[tuple[Alike, str], list[int]] = {}
        for place, (machine, free) in enumerate(zip(market.machines, left.tolist(), strict=True)):
            self._alike.setdefault(((free, machine.free_slots), machine.rack_id), []).append(place)
        self._items = sorted({item_of(kind) for kind in asked if kind.unit > 1}, reverse=True)
        self._patterns: dict[Alike, list[Counter[Item]]] = {}
        self._held: list[tuple[tuple[Alike, str], Counter[Item]]] = []
        for key in self._alike:
            if key[0] not in self._patterns:
                self._patterns[key[0]] = _patterns(self._items, *key[0], patience)
            self._held += [(key, pattern) for pattern in self._patterns[key[0]]]
            if len(self._held) > _MOST_COLUMNS:
                raise _TooManyError
        racks = sorted({rack for _, rack in self._alike})
        self._hosting = [(kind, rack) for kind in asked if kind.level is Level.RACK for rack in racks]
        self.columns = len(self._held) + len(self._hosting)

    def solve(self, time_limit_s: float) -> list[int] | bool | None:
        """How often each column is taken; False where that cannot be, None where not decided."""
        # Imported late, as in `_model`: few markets come so far, and every run would wait for it.
        from rm_plugin.solvers.highs_package import highspy

        highs = self._model(time_limit_s)
        for relaxed in (True, False):
            highs.setOptionValue("solve_relaxation", relaxed)
            highs.clearSolver()
            highs.run()
            status = highs.getModelStatus()
            if status == highspy.HighsModelStatus.kInfeasible:
                return False
            if status != highspy.HighsModelStatus.kOptimal:
                return None
        return [round(value) for value in highs.getSolution().col_value]

    def _model(self, time_limit_s: float) -> highspy.Highs:
        from rm_plugin.solvers.highs_package import highspy

        highs = highspy.Highs()  # type: ignore[no-untyped-call]
        options: dict[str, bool | int | float | str] = {
            "output_flag": False,
            "threads": 1,
            "presolve": "off",
            "time_limit": time_limit_s,
            "mip_max_nodes": _MOST_NODES,
            "simplex_iteration_limit": _MOST_STEPS,
            "mip_feasibility_tolerance": _TOLERANCE,
            "primal_feasibility_tolerance": _TOLERANCE,
        }
        for option, value in options.items():
            highs.setOptionValue(option, value)
        most = [len(self._alike[key]) for key, _ in self._held] + [self._asked[kind] for kind, _ in self._hosting]
        none = (0, np.zeros(0, np.int32), np.zeros(0))
        for column, times in enumerate(most):
            highs.addCol(0.0, 0.0, float(times), *none)
            highs.changeColIntegrality(column, highspy.HighsVarType.kInteger)
        for row in self._rows():
            index, values = np.array(list(row.parts), dtype=np.int32), np.array(list(row.parts.values()), dtype=float)
            highs.addRow(row.least, row.most, len(index), index, values)
        return highs

    def _rows(self) -> list[_Row]:
        """One pattern a machine; items for all that is asked for; in each rack units for the gangs that it hosts."""
        one_each = {key: _Row(most=len(places)) for key, places in self._alike.items()}
        units: dict[tuple[int, str], _Row] = {}
        items = {item: _Row(least=self._asked_of(item)) for item in [*self._items, Item(1)]}
        gangs = {kind: _Row(least=many) for kind, many in self._asked.items() if kind.level is Level.RACK}
        for column, (key, pattern) in enumerate(self._held):
            one_each[key].parts[column] = 1.0
            for item, row in items.items():
                many = room_of(pattern, key[0][0], 1) if item.gpus == 1 else pattern[item]
                if many:
                    row.parts[column] = many
                    if not item.in_slot:
                        units.setdefault((item.gpus, key[1]), _Row(least=0.0)).parts[column] = many
        for column, (kind, rack) in enumerate(self._hosting, start=len(self._held)):
            gangs[kind].parts[column] = 1.0
            units.setdefault((kind.unit, rack), _Row(least=0.0)).parts[column] = -float(kind.units)
        return [*one_each.values(), *units.values(), *items.values(), *gangs.values()]

    def _asked_of(self, item: Item) -> int:
        return sum(kind.units * many for kind, many in self._asked.items() if item_of(kind) == item)

    def read(self, answer: Sequence[int]) -> tuple[list[Items], Counter[tuple[Kind, str]]]:
        """Items by machine, and gangs hosted by kind and rack."""
        on_machine: list[Items] = [{}] * len(self._market.machines)
        taken: Counter[tuple[Alike, str]] = Counter()
        for (key, pattern), times in zip(self._held, answer[: len(self._held)], strict=True):
            for place in self._alike[key][taken[key] : taken[key] + times]:
                on_machine[place] = pattern
            taken[key] += times
        hosted = Counter(dict(zip(self._hosting, answer[len(self._held) :], strict=True)))
        return on_machine, hosted


def _patterns(items: Sequence[Item], free: int, slots: Sequence[int], patience: _Patience) -> list[Counter[Item]]:
    """Everything that a machine holds.

    Raises:
        _TooManyError: That is more than there may be columns, or takes longer than there is patience.
    """
    found: list[Counter[Item]] = [Counter()]
    for item in items:
        for pattern in tuple(found):
            room = free - sum(each.gpus * many for each, many in pattern.items())
            for many in range(1, room // item.gpus + 1):
                patience.spend()
                more = Counter({**pattern, item: many})
                if item.in_slot and not _fit_slots(more, slots, patience):
                    break
                found.append(more)
                if len(found) > _MOST_COLUMNS:
                    raise _TooManyError
    return found


def _fit_slots(pattern: Counter[Item], slots: Sequence[int], patience: _Patience) -> bool:
    """Whether a pattern's items inside slots fit, by trying: largest first, the tightest slot first.

    Slots with as much room are one choice, and what is left of them is looked at once however it came about.
    """
    sizes = sorted((item.gpus for item in pattern.elements() if item.in_slot), reverse=True)
    if any(sum(free // size for free in slots) < sizes.count(size) for size in set(sizes)):
        return False
    begin = (0, tuple(sorted(Counter(slots).items())))
    tried, to_try = {begin}, [begin]
    while to_try:
        placed, rooms = to_try.pop()
        if placed == len(sizes):
            return True
        patience.spend()
        size = sizes[placed]
        for free, _ in reversed(rooms):
            if free < size:
                break
            left = Counter(dict(rooms))
            left[free] -= 1
            left[free - size] += 1
            after = (placed + 1, tuple(sorted((+left).items())))
            if after not in tried:
                tried.add(after)
                to_try.append(after)
    return False
