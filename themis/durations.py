"""The median of durations, some of which were cut short, so that only a lower bound is known."""

from __future__ import annotations

import math
from collections.abc import Iterable


def median_with_cuts(durations: Iterable[tuple[float, bool]]) -> float | None:
    """Return the median by the product-limit estimate.

    The estimate is by Kaplan and Meier ("Nonparametric estimation from incomplete observations", 1958). Without the
    durations that were cut short, only short ones would remain. Counted as complete, they would be too short.

    Example: 2 and 9 are complete, and two durations were cut short at 3. Without the cut ones the median would be 5.5,
    and with them as complete ones 3. The estimate is 9: after 2, three of four continue, and only 9 is a known end.

    Args:
        durations: Lengths in any unit, and whether each is complete. One cut short is known to be longer.

    Returns:
        The time by which half of the durations end. If that is between two complete ones, their mean; if no complete
        one follows, the mean with the next cut. If more than half are longer than all observed lengths, the longest
        length. None without durations.
    """
    # If a complete and a cut duration are equally long, the cut one is the longer.
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
