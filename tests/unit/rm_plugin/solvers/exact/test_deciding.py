"""What a machine of unlike slots holds is found by trying, and given up in time: all ways would have no end."""

import random
from collections import Counter
from itertools import product

import pytest

from rm_plugin.arbiter.auction import run_auction
from rm_plugin.arbiter.market_file import parse_market
from rm_plugin.solvers.exact import deciding
from rm_plugin.solvers.exact.deciding import _fit_slots, _Patience, _patterns, _TooManyError
from rm_plugin.solvers.exact.resources import Item
from rm_plugin.solvers.port import SolveStatus
from rm_plugin.solvers.registry import solver

LONG_S = 1e6


def fits_by_force(sizes, slots):
    def room(places):
        left = list(slots)
        for size, place in zip(sizes, places, strict=True):
            left[place] -= size
        return min(left) >= 0

    return any(room(places) for places in product(range(len(slots)), repeat=len(sizes)))


def test_items_fit_into_slots_exactly_where_some_way_does():
    rng = random.Random(3)
    seen = set()
    for _ in range(400):
        slots = [rng.randint(0, 6) for _ in range(rng.randint(1, 4))]
        sizes = [rng.randint(2, 5) for _ in range(rng.randint(0, 5))]
        pattern = Counter(Item(size, in_slot=True) for size in sizes)
        fits = _fit_slots(pattern, slots, _Patience(LONG_S))
        assert fits == fits_by_force(sizes, slots), (sizes, slots)
        seen.add(fits)
    assert seen == {True, False}


def test_hundreds_of_items_are_no_deeper_than_one():
    assert _fit_slots(Counter({Item(2, in_slot=True): 2_000}), [4] * 1_000, _Patience(LONG_S))
    assert not _fit_slots(Counter({Item(2, in_slot=True): 2_001}), [4] * 1_000, _Patience(LONG_S))


def test_too_many_ways_are_given_up():
    items = [Item(size, in_slot=True) for size in (6, 5, 4, 3, 2)]
    patience = _Patience(LONG_S)
    with pytest.raises(_TooManyError):
        _patterns(items, 66, [7, 7, 7, 6, 6, 6, 6, 6, 5, 5, 5], patience)
    assert patience.tries <= deciding._MOST_TRIES + 1


def test_without_time_nothing_is_tried_for_long():
    patience = _Patience(0.0)
    with pytest.raises(_TooManyError):
        _patterns([Item(4, in_slot=True), Item(3, in_slot=True), Item(2)], 66, [7, 7, 6, 6, 4] * 3, patience)
    assert patience.tries == deciding._LOOK_EVERY


def unlike_slots(seed):
    """Four machines of eight slots with any number of free GPUs, whose gangs want slots, machines and racks."""
    rng = random.Random(seed)
    free = {f"m{number}": [rng.randint(1, 8) for _ in range(8)] for number in range(4)}
    most = sum(map(sum, free.values()))

    def row():
        gangs = []
        for _ in range(rng.randint(1, 3)):
            level = rng.choice(["slot", "slot", "machine", "rack"])
            gpus = rng.randint(2, 6) if level == "slot" else rng.randint(2, 16)
            gangs.append({"gpus": gpus, "within": level, "count": rng.randint(1, max(1, most // (10 * gpus)))})
        gpus = sum(gang["gpus"] * gang["count"] for gang in gangs)
        for gang in gangs:
            if rng.random() < 0.5:
                gang["unit_gpus"] = gang["gpus"] if gang["gpus"] <= 8 else 1
        return {"gangs": gangs, "value": round(0.1 + gpus / most * rng.uniform(0.8, 1.2) * 3, 3)}

    bidders = [{"app": f"a{number}", "empty_value": 0.1, "rows": [row() for _ in range(12)]} for number in range(8)]
    machines = [{"id": name, "rack": f"r{number % 3}", "slots": [8] * 8} for number, name in enumerate(free)]
    return parse_market({"machines": machines, "free": free, "bidders": bidders})


@pytest.mark.parametrize("seed", [2, 8])
def test_an_auction_over_unlike_slots_ends(seed, monkeypatch):
    """It had no end: every way into eleven slots was tried, for each of thousands of patterns."""
    made = []

    class Counted(_Patience):
        def __init__(self, time_limit_s):
            super().__init__(time_limit_s)
            made.append(self)

    monkeypatch.setattr(deciding, "_Patience", Counted)
    outcome = run_auction(unlike_slots(seed), solver("exact"), 3.0)
    assert outcome.status in (SolveStatus.OPTIMAL, SolveStatus.TIME_LIMIT)
    assert outcome.wins
    assert made, "patterns were looked for"
    assert max(each.tries for each in made) <= deciding._MOST_TRIES + 1
