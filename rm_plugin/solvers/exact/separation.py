"""Why a choice does not fit: a limit that it breaks and every feasible choice keeps, by linear programming.

Machines alike hold the same patterns of items. If no mix of patterns, not even a fractional one, makes up the items
that a choice asks for, the duals of that programme weigh items such that the choice asks for more weight than all
machines together can hold (cutting stock; auction.md, section 2).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction

import highspy
import numpy as np

from rm_plugin.solvers.exact.resources import Item

_DENOMINATOR = 24
"""Duals are made whole through fractions no finer than this; the limit is computed anew from the whole weights."""
_MOST_PATTERNS = 5_000


def weights_against(asked: Mapping[Item, int], free: Sequence[int]) -> dict[Item, int] | None:
    """Weights of items that may tell the choice apart, or None when patterns make up all that is asked.

    Args:
        asked: How many of each item, none of them in slots.
        free: Free GPUs of each machine beside what is pinned.
    """
    items = sorted(item for item in asked if not item.in_slot)
    classes = Counter(count for count in free if count)
    columns = [(size, pattern) for size in sorted(classes) for pattern in _patterns([i.gpus for i in items], size)]
    if not items or len(columns) > _MOST_PATTERNS:
        return None
    duals = _duals(items, asked, classes, columns)
    if duals is None:
        return None
    fractions = [Fraction(dual).limit_denominator(_DENOMINATOR) for dual in duals]
    scale = int(np.lcm.reduce([fraction.denominator for fraction in fractions]))
    weights = {item: int(fraction * scale) for item, fraction in zip(items, fractions, strict=True)}
    return {item: weight for item, weight in weights.items() if weight > 0} or None


def _patterns(sizes: Sequence[int], free: int) -> Iterator[tuple[int, ...]]:
    """Counts of each size that fill a machine so far that nothing more fits, sizes ascending."""

    def fill(place: int, left: int) -> Iterator[tuple[int, ...]]:
        if place < 0:
            if left < sizes[0]:
                yield ()
            return
        for count in range(left // sizes[place], -1, -1):
            for rest in fill(place - 1, left - count * sizes[place]):
                yield (*rest, count)

    return fill(len(sizes) - 1, free) if sizes else iter(())


def _duals(
    items: Sequence[Item],
    asked: Mapping[Item, int],
    classes: Mapping[int, int],
    columns: Sequence[tuple[int, tuple[int, ...]]],
) -> list[float] | None:
    """Duals of the items where not all can be made up: minimise the items missing; None when none is."""
    highs = highspy.Highs()  # type: ignore[no-untyped-call]
    highs.setOptionValue("output_flag", False)
    highs.setOptionValue("threads", 1)
    infinity = highspy.kHighsInf
    for item in items:
        highs.addRow(float(asked[item]), infinity, 0, np.zeros(0, np.int32), np.zeros(0))
    machine_row = {size: len(items) + place for place, size in enumerate(sorted(classes))}
    for size in sorted(classes):
        highs.addRow(-infinity, float(classes[size]), 0, np.zeros(0, np.int32), np.zeros(0))
    for place in range(len(items)):
        highs.addCol(1.0, 0.0, infinity, 1, np.array([place], np.int32), np.ones(1))
    for size, pattern in columns:
        used = [place for place, count in enumerate(pattern) if count]
        entries = np.array([*(pattern[place] for place in used), 1.0])
        highs.addCol(0.0, 0.0, infinity, len(entries), np.array([*used, machine_row[size]], np.int32), entries)
    highs.run()
    if highs.getInfo().objective_function_value < 1e-6:
        return None
    return [max(0.0, dual) for dual in list(highs.getSolution().row_dual)[: len(items)]]
