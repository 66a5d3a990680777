"""Which asks are sent: compared many at once, chosen as one after the other."""

from random import Random

import numpy as np
import pytest

from am.agent.selection import SHORTFALLS, select


def cover(needs, gains, shortfall):
    """The asks that none kept before them stands in for."""
    kept = []
    for place, need in enumerate(needs):
        if not any(
            all(a <= b for a, b in zip(needs[other], need, strict=True))
            and gains[other] >= (1.0 - shortfall) * gains[place]
            for other in kept
        ):
            kept.append(place)
    return kept


def drawn(seed, asks, columns):
    rng = Random(seed)
    needs = [tuple(rng.randint(0, 6) for _ in range(columns)) for _ in range(asks)]
    gains = [sum(need) ** 0.7 * rng.uniform(0.6, 1.0) + 0.1 for need in needs]
    order = sorted(range(asks), key=lambda place: (sum(needs[place]), -gains[place]))
    # The first needs nothing: it stands in for any other where nothing is too great a loss.
    return [(0,) * columns, *(needs[place] for place in order)], [0.05, *(gains[place] for place in order)]


@pytest.mark.parametrize("columns", [1, 3, 6, 9])
@pytest.mark.parametrize("asks", [1, 50, 150])
def test_all_that_no_other_makes_useless(columns, asks):
    needs, gains = drawn(f"{columns} {asks}", asks, columns)
    chosen, useful, shortfall = select(np.array(needs, dtype=np.int16), np.array(gains), asks + 1)
    assert chosen == cover(needs, gains, 0.0)
    assert (useful, shortfall) == (len(chosen), 0.0)


@pytest.mark.parametrize("columns", [3, 9])
@pytest.mark.parametrize("cap", [1, 10, 25])
def test_past_the_cap_the_least_shortfall_that_it_allows(columns, cap):
    needs, gains = drawn(columns, 150, columns)
    alive = cover(needs, gains, 0.0)
    needs, gains = [needs[place] for place in alive], [gains[place] for place in alive]
    assert len(alive) > cap
    chosen, useful, shortfall = select(np.array(needs, dtype=np.int16), np.array(gains), cap)
    least = next(each for each in SHORTFALLS if len(cover(needs, gains, each)) <= cap)
    assert (useful, shortfall) == (len(alive), least)
    assert chosen == cover(needs, gains, least)
