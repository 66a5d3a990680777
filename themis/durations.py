"""The median of durations some of which were cut short, so that only their least length is known."""

from __future__ import annotations

import math
from collections.abc import Iterable


def median_with_cuts(durations: Iterable[tuple[float, bool]]) -> float | None:
    """The median by the product-limit estimate.

    It is Kaplan's and Meier's ("Nonparametric estimation from incomplete observations", 1958). To leave out what was
    cut short would keep the quick ones only, and to count it as whole would shorten it.

    Args:
        durations: Length in any unit, and whether it was seen whole. Of one cut short it is known to be longer.

    Returns:
        Where half of the durations end; between two whole ones their mean, as without cuts, and where none is whole
        beyond, the mean with the next cut. Where more than half are longer than all that was seen, the longest. None
        without any.
    """
    # Where a whole one and a cut are as long, the cut one goes on behind it.
    ordered = sorted(durations, key=lambda duration: (duration[0], not duration[1]))
    going_on = 1.0
    half_at: float | None = None
    behind = 0.0
    for place, (length, whole) in enumerate(ordered):
        if not whole:
            continue
        if half_at is not None:
            return (half_at + length) / 2.0
        going_on *= 1.0 - 1.0 / (len(ordered) - place)
        if math.isclose(going_on, 0.5):
            half_at, behind = length, ordered[place + 1][0]
        elif going_on < 0.5:
            return length
    if half_at is not None:
        return (half_at + behind) / 2.0
    return ordered[-1][0] if ordered else None
