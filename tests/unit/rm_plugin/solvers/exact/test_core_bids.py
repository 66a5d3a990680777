"""Compiled reading of bids against plain Python: which rows there are, their gangs and their pins."""

from array import array
from random import Random
from types import SimpleNamespace

import pytest
from small_markets import bid, gang, row

from rm_plugin.solvers.exact import _core
from themis.bids import BidRow
from themis.cluster import Allocation, Level

MACHINES = {f"m{place}": (place, free) for place, free in enumerate((4, 1, 2, 8))}
TOTAL = 15


def drawn_bids(rng, bidders, gangs):
    """Some rows are worth too little, ask for more than there is, or pin GPUs that no machine has."""

    def drawn_row():
        pins = {name: rng.randint(1, 3) for name in ("m0", "m1", "m2", "m3", "gone") if rng.random() < 0.15}
        some = rng.choices(gangs, k=rng.randint(0 if pins else 1, 3))
        return row(rng.choice([0.1, 0.2, 0.5, 1.0]), *some, **pins)

    return tuple(
        bid(f"a{n}", rng.choice([0.1, 0.3]), *(drawn_row() for _ in range(rng.randint(0, 6)))) for n in range(bidders)
    )


def by_python(bids, learn):
    reported = {name: [] for name in ("row_start", "empty", "value", "index", "gpus", "cell", "pin")}
    reported["row_start"].append(0)
    for each in bids:
        reported["empty"].append(each.empty_value)
        for index, one in enumerate(each.rows):
            if one.value <= each.empty_value:
                continue
            number = len(reported["value"])
            there = all(0 < count <= MACHINES.get(machine, (0, 0))[1] for machine, count in one.pinned)
            if one.gpus > TOTAL or not there:
                continue
            reported["value"].append(one.value)
            reported["index"].append(index)
            reported["gpus"].append(one.gpus)
            for each_gang in one.gangs:
                kind, count, _ = learn(each_gang)
                reported["cell"] += (number, kind, count)
            for machine, count in one.pinned:
                reported["pin"] += (number, MACHINES[machine][0], count)
        reported["row_start"].append(len(reported["value"]))
    return reported


def compiled(bids, learn):
    found = _core.read_bids(bids, MACHINES, TOTAL, learn)
    names = ("row_start", "empty", "value", "index", "gpus", "cell", "pin")
    types = ("i", "d", "d", "i", "i", "i", "i")
    return {name: array(code, part).tolist() for name, code, part in zip(names, types, found, strict=True)}


@pytest.mark.parametrize("seed", range(30))
def test_rows_are_read_as_by_plain_python(seed):
    rng = Random(seed)
    # More of them than the table of gangs has room for at first.
    gangs = [gang(rng.randint(1, 6), Level.RACK, rng.randint(1, 3)) for _ in range(rng.choice([1, 5, 200]))]
    bids = drawn_bids(rng, rng.choice([0, 1, 40]), gangs)
    number = {id(each): place for place, each in enumerate(gangs)}
    asked = []

    def learn(one):
        asked.append(id(one))
        return number[id(one)], one.count, min(one.total_gpus, TOTAL + 1)

    found = compiled(bids, learn)
    assert len(asked) == len(set(asked))
    assert found == by_python(bids, learn)


def test_gangs_of_rows_that_are_left_out_are_learnt_too():
    asked = []
    large = gang(9, Level.RACK, 2)
    bids = (bid("a", 0.1, row(0.9, large), row(0.8, large, gone=1)),)
    assert compiled(bids, lambda one: asked.append(one) or (0, 0, TOTAL + 1))["value"] == []
    assert asked == [large]


def test_whole_numbers_are_values_too():
    bids = (bid("a", 0, BidRow(value=2, pinned=Allocation.of({"m3": 1}))),)
    assert compiled(bids, lambda _: (0, 0, 0))["value"] == [2.0]


def with_pins(pins):
    """One bid with such pins, whatever they are."""
    one = SimpleNamespace(value=0.9, pinned=SimpleNamespace(counts=pins), gangs=())
    return (SimpleNamespace(empty_value=0.1, rows=(one,)),)


def test_pins_past_all_bounds_leave_a_row_out():
    assert compiled(with_pins((("m0", 10**30),)), None)["value"] == []


@pytest.mark.parametrize("learnt", [None, (0, 1), (0, 1, "all")])
def test_a_gang_is_described_by_three_numbers(learnt):
    with pytest.raises(TypeError):
        compiled((bid("a", 0.1, row(0.9, gang(1, Level.RACK))),), lambda _: learnt)


def test_machines_are_given_by_position_and_gpus():
    with pytest.raises(TypeError):
        _core.read_bids(with_pins((("m0", 1),)), {"m0": 4}, TOTAL, None)


def test_gangs_created_on_access_are_distinguished():
    class Fresh:
        value, pinned = 0.9, Allocation()

        def __init__(self, gpus):
            self.gpus = gpus

        @property
        def gangs(self):
            return (gang(self.gpus, Level.RACK),)

    bids = (SimpleNamespace(empty_value=0.1, rows=tuple(Fresh(1 + n % 5) for n in range(50))),)
    found = compiled(bids, lambda one: (one.gpus, 1, one.gpus))
    assert found["gpus"] == [1 + n % 5 for n in range(50)]


@pytest.mark.parametrize(
    ("bids", "error"),
    [
        ((object(),), AttributeError),
        ((SimpleNamespace(empty_value="much", rows=()),), TypeError),
        ((SimpleNamespace(empty_value=0.1, rows=[]),), TypeError),
        ((SimpleNamespace(empty_value=0.1, rows=(object(),)),), AttributeError),
        ((bid("a", 0.1, row(0.9, gang(1, Level.RACK))),), ZeroDivisionError),
        ([], TypeError),
        (with_pins((None,)), TypeError),
        (with_pins((("m0",),)), TypeError),
        (with_pins((("m0", "one"),)), TypeError),
        (with_pins((([], 1),)), TypeError),
    ],
)
def test_malformed_bids_are_refused(bids, error):
    with pytest.raises(error):
        _core.read_bids(bids, MACHINES, TOTAL, lambda _: 1 // 0)
