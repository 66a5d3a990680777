"""Sums of floats that have the same bits in every version of Python."""

from __future__ import annotations

import operator
from collections.abc import Iterable
from functools import reduce


def sum_in_order(values: Iterable[float]) -> float:
    """Add numbers from left to right, each partial sum rounded. Use it where a decision or a record depends on the sum.

    The built-in `sum` does this before Python 3.12. Later versions compensate rounding errors, so the last bits differ
    and a tie may break another way. Example: `[1e16, 1.0, -1e16]` adds up to 0.0 here, to 1.0 with `sum` in 3.12.
    """
    return reduce(operator.add, values, 0.0)
