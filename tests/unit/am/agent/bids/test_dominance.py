"""Which candidates are sent: compared many at once, chosen as one after the other."""

from random import Random

import numpy as np
import pytest

from am.agent import _candidates
from am.agent.bids.dominance import SHORTFALLS, thinned


def cover(needs, gains, shortfall, first=()):
    """The first ones, and the candidates that none kept before stands in for."""
    kept = list(first)
    for place, need in enumerate(needs):
        if not any(
            all(a <= b for a, b in zip(needs[other], need, strict=True))
            and gains[other] >= (1.0 - shortfall) * gains[place]
            for other in kept
        ):
            kept.append(place)
    return sorted(kept)


def best_by_gpus(gains, gpus):
    """The candidates than which none with as few GPUs gains more."""
    return [
        place
        for place, gain in enumerate(gains)
        if all(gains[other] < gain for other in range(len(gains)) if gpus[other] <= gpus[place] and other != place)
    ]


def drawn(seed, candidates, columns):
    rng = Random(seed)
    needs = [tuple(rng.randint(0, 6) for _ in range(columns)) for _ in range(candidates)]
    gains = [sum(need) ** 0.7 * rng.uniform(0.6, 1.0) + 0.1 for need in needs]
    order = sorted(range(candidates), key=lambda place: (sum(needs[place]), -gains[place]))
    # The first needs nothing: it stands in for any other where nothing is too great a loss.
    return [(0,) * columns, *(needs[place] for place in order)], [0.05, *(gains[place] for place in order)]


@pytest.mark.parametrize("columns", [1, 3, 6, 9])
@pytest.mark.parametrize("candidates", [1, 50, 150])
def test_all_that_no_other_makes_useless(columns, candidates):
    needs, gains = drawn(f"{columns} {candidates}", candidates, columns)
    ranked = sorted(range(len(gains)), key=lambda place: (sum(needs[place]), -gains[place]))
    expected = cover([needs[place] for place in ranked], [gains[place] for place in ranked], 0.0)
    assert chosen_of(needs, gains) == [ranked[place] for place in expected]


def chosen_of(needs, gains, empty_value=0.0):
    """What the compiled pruning chooses, in its order, of candidates without one-step variants."""
    none, kept = np.zeros(0, dtype=np.int64), np.empty(len(gains), dtype=np.int64)
    arrays = np.array(gains), np.array(gains), np.array(needs, dtype=np.int16), gpus_of(needs) + 1, none, none
    return kept[: _candidates.undominated(*arrays, empty_value, kept)].tolist()


def gpus_of(needs):
    return np.array([sum(need) for need in needs])


@pytest.mark.parametrize("columns", [3, 9])
@pytest.mark.parametrize("cap", [40, 60])
def test_the_cap_keeps_the_best_by_gpus_then_the_least_shortfall(columns, cap):
    needs, gains = drawn(columns, 150, columns)
    alive = cover(needs, gains, 0.0)
    needs, gains = [needs[place] for place in alive], [gains[place] for place in alive]
    assert len(alive) > cap
    best = best_by_gpus(gains, gpus_of(needs))
    assert len(best) < cap // 2
    chosen = thinned(np.array(needs, dtype=np.int16), np.array(gains), gpus_of(needs), cap)
    least = next(each for each in SHORTFALLS if len(cover(needs, gains, each, best)) <= cap)
    assert chosen == cover(needs, gains, least, best)


@pytest.mark.parametrize("cap", [1, 2, 10, 25])
def test_any_cap_keeps_the_largest_gain(cap):
    needs, gains = drawn(5, 150, 3)
    alive = cover(needs, gains, 0.0)
    needs, gains = [needs[place] for place in alive], [gains[place] for place in alive]
    chosen = thinned(np.array(needs, dtype=np.int16), np.array(gains), gpus_of(needs), cap)
    assert max(gains) == max(gains[place] for place in chosen)
    assert len(chosen) <= max(cap, 2)


def test_candidates_of_no_use_are_not_chosen():
    """Worth no more than the empty bundle, without GPUs, or worth no more than an easier variant."""
    values, needs = np.array([1.0, 9.0, 3.0, 3.0, 4.0]), np.array([[1], [0], [2], [1], [3]], dtype=np.int16)
    gpus, kept = np.array([1, 0, 2, 3, 4]), np.empty(5, dtype=np.int64)
    harder, easier = np.array([3]), np.array([2])
    many = _candidates.undominated(values, values, needs, gpus, harder, easier, 1.0, kept)
    assert kept[:many].tolist() == [2, 4]


@pytest.mark.parametrize(
    ("place", "other", "message"),
    [(1, np.ones(2), "candidates"), (3, np.ones(3), "int64"), (4, np.array([0]), "pairs")],
)
def test_arrays_that_do_not_agree_are_refused(place, other, message):
    none = np.zeros(0, dtype=np.int64)
    case = [np.ones(3), np.ones(3), np.ones((3, 1), dtype=np.int16), np.ones(3, dtype=np.int64), none, none, 0.5]
    case = [*case, np.empty(3, dtype=np.int64)]
    assert _candidates.undominated(*case) == 1
    with pytest.raises(ValueError, match="candidate 3 is not one of 3"):
        _candidates.undominated(*case[:4], np.array([3]), np.array([0]), *case[6:])
    case[place] = other
    with pytest.raises(ValueError, match=message):
        _candidates.undominated(*case)
