"""Past the time limit: how much work the problems without one bidder are still worth, and what they answer."""

import itertools
import math
import random
from types import SimpleNamespace

import numpy as np
import pytest
from core_cases import bound_of
from msgspec.structs import replace
from small_markets import bid, gang, machine, market, prepared, row

from rm_plugin.arbiter.auction import run_auction
from rm_plugin.solvers import ladder
from rm_plugin.solvers.exact import _core, cut_generation, problem
from rm_plugin.solvers.exact.row_placement import RowPlacer
from rm_plugin.solvers.ladder import exact_ladder
from rm_plugin.solvers.port import SolveStatus
from themis.choices import EmptyBundle
from themis.cluster import Level
from themis_lab.audit.feasibility import infeasible
from themis_lab.audit.recipes import Recipe, random_market

MANY = Recipe(machines=10, bidders=8, rows=20, sizes=(1, 2, 3, 4, 5), racks=3, slot_gpus=4)


def wide_market(bidders=24):
    """Rows of gangs of any size, valued by their sizes: no bound separates good choices from bad ones."""
    rng = random.Random(2)
    sizes = [[[rng.randint(5, 25) for _ in range(rng.randint(1, 4))] for _ in range(10)] for _ in range(bidders)]
    bids = [
        bid(
            f"a{number:02}",
            0.1,
            *(
                row(0.1 * 2.718281828 ** (sum(gpus) / 50), *(gang(each, Level.MACHINE) for each in gpus))
                for gpus in rows
            ),
        )
        for number, rows in enumerate(sizes)
    ]
    return market([machine(f"m{number}", 32) for number in range(12)], *bids)


def made_ready(given):
    """A ladder that has prepared a market for its search, whatever the clock says."""
    exact = exact_ladder()
    climb = exact._climb_of(given)
    climb._prepare(math.inf)
    return exact


def forget_unused(exact):
    """As if the first problem had taken all of its time."""
    exact._unused_s = 0.0


@pytest.fixture
def work(monkeypatch):
    """How often rows were searched for, prices made and gangs packed."""
    calls = {"search": 0, "prices": 0, "pack": 0}

    def counted(name, true):
        def call(*given):
            calls[name] += 1
            return true(*given)

        return call

    for name in ("search", "prices"):
        monkeypatch.setattr(_core, name, counted(name, getattr(_core, name)))
    monkeypatch.setattr(RowPlacer, "pack", counted("pack", RowPlacer.pack))
    return calls


def test_without_time_the_problems_without_one_bidder_take_no_work(work):
    given = wide_market()
    exact = made_ready(given)
    full = exact.solve(given, 0.0)
    assert full.status is SolveStatus.TIME_LIMIT
    assert len(full.wins) > 5
    before = dict(work)
    rest = exact.without(given, sorted(full.wins), 0.0)
    assert work == before
    for app_id, found in rest.items():
        assert found.status is SolveStatus.TIME_LIMIT
        assert {app: win.row for app, win in found.wins.items()} == {
            app: win.row for app, win in full.wins.items() if app != app_id
        }


@pytest.mark.parametrize("full_s", [0.0, 60.0])
@pytest.mark.parametrize("empty_bundle", EmptyBundle)
def test_the_gap_without_a_bidder_covers_the_optimum(full_s, empty_bundle):
    late = 0
    for seed in range(4):
        given = random_market(seed, replace(MANY, empty_bundle=empty_bundle))
        exact = made_ready(given)
        full = exact.solve(given, full_s)
        forget_unused(exact)
        for app_id, found in exact.without(given, sorted(full.wins)[:3], 0.0).items():
            best = exact_ladder().solve(given.without(app_id), 60.0)
            assert infeasible(given.without(app_id), {app: full.wins[app] for app in found.wins}) == []
            assert (found.status is SolveStatus.TIME_LIMIT) == (found.gap > 0.0)
            assert found.positive <= best.positive
            if found.positive == best.positive:
                assert found.log_objective - 1e-9 <= best.log_objective <= found.log_objective + found.gap + 1e-9
            late += found.status is SolveStatus.TIME_LIMIT
    assert late > 0


def test_no_payments_without_time():
    given = wide_market()
    outcome = run_auction(given, made_ready(given), 0.0)
    assert not outcome.optimal
    assert outcome.wins
    assert set(outcome.shares.values()) == {1.0}


def test_a_market_without_time_to_prepare_has_no_winners():
    given = wide_market()
    found = exact_ladder().solve(given, 0.0)
    assert (found.status, found.wins) == (SolveStatus.TIME_LIMIT, {})
    best = sum(math.log(max(each.value for each in bid.rows) / bid.empty_value) for bid in given.bids)
    assert found.gap == pytest.approx(best)
    assert set(run_auction(given, exact_ladder(), 0.0).shares.values()) == {1.0}


class Clock:
    """A clock by which searches take all the time they are given, and narrow ones `sketch_s`."""

    def __init__(self, monkeypatch, sketch_s):
        self.now_s = 100.0
        self.searches_s = []
        self.sketches = 0
        self.sketch_s = sketch_s
        self.search = _core.search
        for module in (problem, ladder):
            monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: self.now_s))
        monkeypatch.setattr(_core, "search", self.searched)

    def searched(self, given, skip, price, gap, beam, seconds, most_states, choice):
        if beam:
            self.sketches += 1
            self.now_s += self.sketch_s
            return self.search(given, skip, price, gap, beam, seconds, most_states, choice)
        self.searches_s.append(seconds)
        self.now_s += max(0.0, seconds)
        return self.search(given, skip, price, gap, beam, 0.0, most_states, choice)


def test_narrow_searches_end_with_the_time_of_all_problems(monkeypatch):
    """Each takes a second, of 4 for 12 problems: at most one is begun just before the end."""
    given = wide_market()
    exact = made_ready(given)
    full = exact.solve(given, 0.0)
    clock = Clock(monkeypatch, sketch_s=1.0)
    rest = exact.without(given, sorted(full.wins)[:12], 4.0)
    assert len(rest) == 12
    assert clock.sketches <= 4
    assert clock.now_s <= 105.0
    assert all(found.status is SolveStatus.TIME_LIMIT for found in rest.values())


def test_searches_leave_the_time_of_a_narrow_one(monkeypatch):
    """Of 12 s for 4 problems the first takes 3 s and one more; the others know, and so all have their turn."""
    given = wide_market()
    exact = made_ready(given)
    full = exact.solve(given, 0.0)
    clock = Clock(monkeypatch, sketch_s=1.0)
    exact.without(given, sorted(full.wins)[:4], 12.0)
    assert clock.searches_s == pytest.approx([3.0, 8 / 3 - 1, 8 / 3 - 1, 8 / 3 - 1])
    assert (clock.sketches, clock.now_s) == (4, pytest.approx(112.0))


@pytest.mark.parametrize("spent", [False, True])
def test_time_left_by_the_first_problem_goes_to_the_others_once(spent):
    given, exact = random_market(1, MANY), exact_ladder()
    full = exact.solve(given, 60.0)
    assert full.status is SolveStatus.OPTIMAL
    if spent:
        exact.without(given, (), 0.0)
    rest = exact.without(given, sorted(full.wins), 0.0)
    proven = [found.status is SolveStatus.OPTIMAL for found in rest.values()]
    assert len(proven) > 3
    assert not all(proven) if spent else all(proven)


def test_an_answer_without_time_is_no_worse_than_the_other_winners_rows():
    given, exact = wide_market(), exact_ladder()
    full = exact.solve(given, 0.2)
    for app_id, found in exact.without(given, sorted(full.wins), 1.0).items():
        kept = {app: win for app, win in full.wins.items() if app != app_id}
        assert worth(given.bids, found.wins) >= worth(given.bids, kept)


def worth(bids, wins):
    """What a choice is worth: how many have something, then the log of the product of their values."""
    values = [each.rows[wins[each.app_id].row].value if each.app_id in wins else each.empty_value for each in bids]
    logs = [math.log(value) for value in values if value > 0]
    return len(logs), round(math.fsum(logs), 9)


class Ticking:
    """A clock that goes on by a second with each attempt at places, none of which finds any."""

    def __init__(self, monkeypatch):
        self.now_s = 100.0
        for module in (problem, cut_generation):
            monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: self.now_s))
        for name in ("by_group_patterns", "by_machine_patterns"):
            monkeypatch.setattr(RowPlacer, name, self.tried)

    def tried(self, *_):
        self.now_s += 1.0


def choices():
    """Choices that fit, so that no limit is broken, each with its market made ready; racks come in every other."""
    for seed in range(12):
        levels = (Level.RACK, Level.MACHINE) if seed % 2 else (Level.SLOT, Level.MACHINE)
        compiled = prepared(
            random_market(seed, replace(MANY, machines=20, bidders=16, pinned=False, units=False, levels=levels))
        )
        starts = compiled.arrays.rows.row_start.tolist()
        rows = [random.Random(seed).randrange(start, end) for start, end in itertools.pairwise(starts) if end > start]
        while isinstance(compiled.placer.pack(np.array(rows, dtype=np.int32)), int):
            rows.pop()
        yield compiled, np.array(rows, dtype=np.int32)


def test_the_placement_search_stops_at_the_limit(monkeypatch):
    """The attempt that is begun in time is the last."""
    clock, took_s = Ticking(monkeypatch), []
    for compiled, rows in choices():
        before = clock.now_s
        assert compiled.find_cut_or_places(rows, math.inf) is None
        took_s.append(clock.now_s - before)
        for time_s in (0.0, 1.5, 4.0):
            before = clock.now_s
            assert compiled.find_cut_or_places(rows, before + time_s) is None
            assert clock.now_s - before <= min(took_s[-1], math.ceil(time_s) + 1.0)
    assert sum(seconds >= 5.0 for seconds in took_s) > 6


@pytest.mark.parametrize(("time_s", "tries"), [(-1.0, 1), (0.5, 1), (1.5, 2), (1000.0, 6)])
def test_the_full_market_is_placed_quickly_before_thoroughly(monkeypatch, time_s, tries):
    """A quick attempt is always made, and takes a second; how many follow is a matter of time."""
    clock, looked_at = Ticking(monkeypatch), []
    ready = [(compiled, rows) for compiled, rows in choices() if compiled.arrays.kinds[0].level is not Level.SLOT]
    monkeypatch.setattr(RowPlacer, "pack", lambda *given: 0)
    for compiled, rows in ready:
        before = clock.now_s
        assert problem._Problem(compiled, -1, before + time_s, before + time_s)._quick_places_or_cut(rows) is None
        looked_at.append(clock.now_s - before)
    assert max(looked_at) == tries


def test_the_bound_without_a_bidder_follows_from_its_prices():
    for seed in range(10):
        compiled = prepared(random_market(seed, MANY))
        compiled.known_bound(0)
        price = compiled.prices(-1)
        for skip in range(len(compiled.arrays.bids)):
            assert compiled.known_bound(skip) == bound_of(compiled.problem, skip, price)
