"""Resources and cuts: none forbids a choice that has places, and sufficient ones admit no other choice."""

import random

import numpy as np
import pytest
from core_cases import all_choices, keeps, pinned_by
from small_markets import bid, gang, machine, market, row

from rm_plugin.solvers.brute_force import place_all
from rm_plugin.solvers.exact.cut_generation import find_cut_or_places
from rm_plugin.solvers.exact.knapsack import most_pinned, pinned_together
from rm_plugin.solvers.exact.market_arrays import read_market
from rm_plugin.solvers.exact.resources import Resource, first_resources, pinned_resources
from rm_plugin.solvers.exact.row_placement import RowPlacer, Searched
from themis.cluster import Level
from themis_lab.audit.recipes import Recipe, random_market

MACHINE, RACK, SLOT, CLUSTER = Level.MACHINE, Level.RACK, Level.SLOT, Level.CLUSTER
MAX_RESOURCES, MAX_CUTS = 160, 30

RECIPES = {
    "anything": Recipe(sizes=(1, 2, 3, 4, 5), rows=4, slot_gpus=4),
    "racks": Recipe(machines=5, racks=2, sizes=(2, 4, 6), levels=(RACK, RACK, MACHINE), rows=4),
    "slots": Recipe(levels=(SLOT, SLOT, MACHINE), slot_gpus=4, rows=4),
    "pinned": Recipe(pinned_gangs=True, units=False, rows=5, machines=3),
    "odd sizes": Recipe(sizes=(2, 3, 5), levels=(MACHINE,), slot_gpus=4, rows=4, pinned=False, machines=3),
    "racks in units": Recipe(machines=5, sizes=(2, 3, 4, 6), levels=(RACK,), rows=4, pinned=False),
    "racks and pins": Recipe(machines=4, sizes=(2, 3, 4), levels=(RACK, CLUSTER), units=False, rows=6, slot_gpus=2),
    "divisible": Recipe(sizes=(1, 2, 4), levels=(MACHINE, CLUSTER), slot_gpus=4, rows=4, racks=1),
    "divisible units": Recipe(sizes=(2, 4), levels=(CLUSTER,), units=True, slot_gpus=4, rows=4, pinned=False),
}


class Case:
    """A small market in arrays, its first limits, and which choices fit."""

    def __init__(self, given):
        self.market, self.arrays = given, read_market(given)
        self.rows, self.places = self.arrays.rows, RowPlacer(self.arrays)
        self.free = self.places.free
        together = pinned_together(self.rows, self.free)
        self.first = first_resources(self.arrays.machines, self.arrays.kinds, together)
        asked = most_pinned(self.rows, len(self.free))
        self.pinned = pinned_resources(self.free, len(self.arrays.kinds), asked)

    def choices(self, rng, most):
        """Choices that win something and pin no more than is free: all, or at most `most` random ones."""
        every = [[row for row in choice if row >= 0] for choice in all_choices(self.rows)]
        every = [choice for choice in every if choice]
        for chosen in rng.sample(every, min(most, len(every))):
            pinned = pinned_by(self.rows, chosen, len(self.free))
            if (pinned <= self.free).all():
                yield chosen, pinned

    def fit(self, chosen):
        bidder = np.searchsorted(self.rows.row_start, chosen, side="right") - 1
        rows = {
            self.arrays.bids[b].app_id: self.arrays.bids[b].rows[self.rows.index[r]]
            for b, r in zip(bidder, chosen, strict=True)
        }
        return place_all(self.arrays.machines, rows) is not None


def cases(name, number):
    for seed in range(number):
        case = Case(random_market(seed, RECIPES[name]))
        if case.rows.rows:
            yield random.Random(seed), case


@pytest.mark.parametrize("name", RECIPES)
def test_feasible_choices_keep_all_resources_and_sufficient_ones_admit_no_others(name):
    fitting, sufficient, broken = 0, 0, 0
    for rng, case in cases(name, 60):
        for chosen, pinned in case.choices(rng, 25):
            within = all(keeps(limit, case.rows, chosen, pinned) for limit in (*case.first.each, *case.pinned))
            fits = case.fit(chosen)
            assert within or not fits, (case.market, chosen)
            assert fits or not within or not case.first.sufficient, (case.market, chosen)
            fitting, broken = fitting + fits, broken + (not within)
            sufficient += case.first.sufficient
    assert fitting > 100
    assert broken > 100
    assert (sufficient > 200) == name.startswith("divisible")


@pytest.mark.parametrize(
    "name", ["anything", "racks", "slots", "pinned", "odd sizes", "racks in units", "racks and pins"]
)
def test_a_cut_forbids_its_choice_and_no_feasible_one(name):
    learnt, told_more, forbidden = 0, 0, 0
    for rng, case in cases(name, 60):
        every = list(case.choices(rng, 25))
        fitting = [(chosen, pinned) for chosen, pinned in every if case.fit(chosen)]
        for chosen, pinned in every:
            rows = np.array(chosen, dtype=np.int32)
            answer = find_cut_or_places(case.arrays, rows, case.places, 0)
            if not isinstance(answer, Resource):
                continue
            learnt += 1
            told_more += all(keeps(limit, case.rows, chosen, pinned) for limit in case.first.each)
            assert not keeps(answer, case.rows, chosen, pinned)
            assert all(keeps(answer, case.rows, *other) for other in fitting), (case.market, chosen)
            forbidden += sum(not keeps(answer, case.rows, *other) for other in every)
    assert learnt > 100
    # Some were broken by choices that the first limits let pass, and by others than the one that taught them.
    assert told_more > 0
    assert forbidden > 2 * learnt


@pytest.mark.parametrize("name", ["anything", "racks", "slots", "pinned"])
def test_patterns_place_only_feasible_choices(name):
    """Gangs by the patterns of a dive are feasible; a dive is not asked to find what a search would."""
    made = 0
    for rng, case in cases(name, 60):
        for chosen, _ in case.choices(rng, 12):
            rows = np.array(chosen, dtype=np.int32)
            answer = find_cut_or_places(case.arrays, rows, case.places, 0)
            if not isinstance(answer, Searched):
                continue
            # Placed gangs pass through `realise`, which raises where they do not fit.
            assert sorted(answer.gangs()) == sorted(chosen)
            assert case.fit(chosen)
            made += 1
    assert made > 20


def test_each_of_identical_racks_counts_for_a_cut():
    """Three racks of 3 and 2 GPUs hold a gang of three each: four are too many, three are not."""
    machines = [machine(f"m{n}", 3 - n % 2, rack=f"r{n // 2}") for n in range(6)]
    case = Case(market(machines, bid("a", 0.1, row(0.9, gang(3, RACK, 4)), row(0.5, gang(3, RACK, 3)))))
    rows = np.array([0], dtype=np.int32)
    limit = find_cut_or_places(case.arrays, rows, case.places, 0)
    nothing = np.zeros(6, dtype=np.int64)
    assert [keeps(limit, case.rows, [row_], nothing) for row_ in (0, 1)] == [False, True]


def test_patterns_that_leave_single_gpus_share_the_racks_of_gangs_that_want_them():
    """Every GPU of three racks is asked for: six gangs of three leave one each, for two gangs that lie in racks."""
    machines = [machine(f"m{n:02d}", 4, rack=f"r{n % 3}") for n in range(12)]
    rows = (gang(3, MACHINE, 6), gang(3, RACK, 2), gang(4, MACHINE, 5), gang(2, MACHINE, 2))
    case = Case(market(machines, bid("a", 0.1, row(0.9, *rows))))
    placed = find_cut_or_places(case.arrays, np.array([0], dtype=np.int32), case.places, 0)
    assert isinstance(placed, Searched)
    assert sum(each.gpus.gpus for each in placed.gangs()[0]) == 48


def test_pins_that_break_pairs_keep_the_limit_on_pairs():
    """Two machines of 4 hold four pairs, as single GPUs say already; with one GPU of each pinned they hold two."""
    machines = [machine("m0", 4), machine("m1", 4)]
    pairs = bid("a", 0.1, row(0.9, gang(2, MACHINE, 3)), row(0.5, gang(2, MACHINE, 2)))
    for pins, names in (({}, {1}), ({"m0": 2}, {1}), ({"m0": 1, "m1": 1}, {1, 2})):
        other = bid("b", 0.1, row(0.5, gang(1, CLUSTER), **pins))
        first = Case(market(machines, pairs, other)).first
        assert {limit.name for limit in first.each} == {("machine", size) for size in names}
        assert first.sufficient


def test_limits_beyond_the_core_maximum_are_thinned_and_not_sufficient():
    sizes = [2**n for n in range(1, 5)]
    few = market([machine("m0", 16)], bid("a", 0.1, *(row(0.2, gang(size, MACHINE)) for size in sizes)))
    assert Case(few).first.sufficient
    machines = [machine(f"m{n}", n + 1, 2, rack=f"r{n % 4}") for n in range(90)]
    asked = [row(0.2 + 0.001 * g, gang(g, level), gang(2, MACHINE)) for g in range(2, 90) for level in (SLOT, RACK)]
    case = Case(market(machines, bid("a", 0.1, *asked)))
    assert len(case.first.each) + len(case.pinned) + MAX_CUTS <= MAX_RESOURCES
    assert case.first.each[0].name == ("machine", 1)
    assert not case.first.sufficient


def test_pinned_resources_leave_places_for_cuts():
    machines = [machine(f"m{n:03}", 3, rack=f"r{n % 4}") for n in range(140)]
    pins = [row(0.2 + 0.001 * n, gang(2, MACHINE), **{f"m{n:03}": 2}) for n in range(140)]
    case = Case(market(machines, bid("a", 0.1, *pins), bid("b", 0.1, *pins)))
    assert len(case.pinned) > 100
    assert len(case.first.each) + len(case.pinned) + MAX_CUTS <= MAX_RESOURCES


def test_a_thinned_chain_of_sizes_is_not_sufficient(monkeypatch):
    monkeypatch.setattr("rm_plugin.solvers.exact.resources._MAX_FIRST", 3)
    machines = [machine(f"m{n}", 3) for n in range(5)] + [machine("z", 40)]
    sizes = (1, 2, 4, 8, 16, 32)
    given = market(machines, bid("a", 0.1, *(row(0.2, gang(size, MACHINE)) for size in sizes)))
    first = Case(given).first
    assert len(first.each) == 3
    assert not first.sufficient


def test_a_machine_too_large_to_weigh_yields_no_cut():
    """All of it but one GPU is pinned, so the others are weighed; the limit would need its whole size."""
    machines = [machine("m0", 600), machine("m1", 4), machine("m2", 4)]
    given = market(machines, bid("a", 0.1, row(0.9, gang(3, MACHINE, 2), gang(2, MACHINE), m0=599)))
    case = Case(given)
    rows = np.array([0], dtype=np.int32)
    assert find_cut_or_places(case.arrays, rows, case.places, 0) is None
    assert not case.fit([0])
