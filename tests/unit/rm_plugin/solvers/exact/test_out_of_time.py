"""Past the time limit: how much work the problems without one bidder are still worth, and what they answer."""

import itertools
import math
import random
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from small_markets import bid, covers, gang, machine, market, row

from rm_plugin.arbiter.auction import run_auction
from rm_plugin.solvers.exact import _core, learning, problem, solver, tables
from rm_plugin.solvers.exact.compiled import CompiledMarket, OutOfTimeError
from rm_plugin.solvers.exact.places import Places
from rm_plugin.solvers.exact.rows import read_market
from rm_plugin.solvers.exact.solver import ExactSolver
from rm_plugin.solvers.exact.tables import TableMarket
from rm_plugin.solvers.highs import HighsSolver
from rm_plugin.solvers.port import SolveStatus
from themis.choices import EmptyBundle
from themis.cluster import Level
from themis_lab.audit.feasibility import infeasible
from themis_lab.audit.recipes import Recipe, random_market

MANY = Recipe(machines=10, bidders=8, rows=20, sizes=(1, 2, 3, 4, 5), racks=3, slot_gpus=4)
EIGHT_TABLES = Recipe(machines=10, bidders=8, rows=12, slot_gpus=4, explicit=True)


def wide_market(bidders=24):
    """Rows of gangs of any size, worth as much as they are large: nothing tells good choices from bad ones."""
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
    """A solver that has read a market and held it to its limits, whatever the clock says."""
    exact = ExactSolver()
    exact._market, exact._ready = given, CompiledMarket(given)
    return exact


def forget_unused(exact):
    """As if the first problem had taken all of its time."""
    exact._unused_s = 0.0


def many_tables(seed=0):
    """Rows that name machines: too many to find the optimum without a look at the relaxation."""
    return random_market(seed, Recipe(machines=12, bidders=20, rows=12, explicit=True))


def tables_made_ready(given):
    """A solver that has read a market of tables, whatever the clock says."""
    exact = ExactSolver()
    exact._market, exact._ready = given, TableMarket(given, read_market(given))
    return exact


@pytest.fixture
def work(monkeypatch):
    """How often rows were searched for, prices made and gangs packed."""
    calls = {"search": 0, "prices": 0, "best_of_tables": 0, "pack": 0}

    def counted(name, true):
        def call(*given):
            calls[name] += 1
            return true(*given)

        return call

    for name in ("search", "prices", "best_of_tables"):
        monkeypatch.setattr(_core, name, counted(name, getattr(_core, name)))
    monkeypatch.setattr(Places, "pack", counted("pack", Places.pack))
    return calls


@pytest.mark.parametrize(
    ("given", "solver_of"), [(wide_market(), made_ready), (many_tables(), tables_made_ready)], ids=["gangs", "tables"]
)
def test_without_time_the_problems_without_one_bidder_take_no_work(work, given, solver_of):
    exact = solver_of(given)
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
def test_what_is_left_without_a_bidder_has_a_gap_that_covers_the_optimum(full_s, empty_bundle):
    late = 0
    for seed in range(4):
        given, exact = random_market(seed, replace(MANY, empty_bundle=empty_bundle)), ExactSolver()
        full = exact.solve(given, full_s)
        forget_unused(exact)
        for app_id, found in exact.without(given, sorted(full.wins)[:3], 0.0).items():
            best = ExactSolver().solve(given.without(app_id), 60.0)
            assert infeasible(given.without(app_id), {app: full.wins[app] for app in found.wins}) == []
            assert (found.status is SolveStatus.TIME_LIMIT) == (found.gap > 0.0)
            assert found.positive <= best.positive
            if found.positive == best.positive:
                assert found.log_objective - 1e-9 <= best.log_objective <= found.log_objective + found.gap + 1e-9
            late += found.status is SolveStatus.TIME_LIMIT
    assert late > 0


@pytest.mark.parametrize(
    ("given", "solver_of"),
    [
        (wide_market(), made_ready),
        (wide_market(), lambda given: ExactSolver()),
        (many_tables(), tables_made_ready),
        (many_tables(), lambda given: ExactSolver()),
    ],
    ids=["ready", "hasty", "tables", "hasty tables"],
)
def test_whoever_no_time_is_left_for_pays_nothing(given, solver_of):
    outcome = run_auction(given, solver_of(given), 0.0)
    assert not outcome.optimal
    assert outcome.wins
    assert set(outcome.shares.values()) == {1.0}


class Clock:
    """A clock by which searches take all the time they are given, and narrow ones `sketch_s`."""

    def __init__(self, monkeypatch, sketch_s):
        self.now_s = 100.0
        self.searches_s = []
        self.sketches = 0
        self.sketch_s = sketch_s
        self.search = _core.search
        for module in (problem, solver, tables):
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
def test_what_the_first_problem_leaves_of_its_time_goes_to_the_others_once(spent):
    given, exact = random_market(1, MANY), ExactSolver()
    full = exact.solve(given, 60.0)
    assert full.status is SolveStatus.OPTIMAL
    if spent:
        exact.without(given, (), 0.0)
    rest = exact.without(given, sorted(full.wins), 0.0)
    proven = [found.status is SolveStatus.OPTIMAL for found in rest.values()]
    assert len(proven) > 3
    assert not all(proven) if spent else all(proven)


def test_an_answer_without_time_is_no_worse_than_what_the_others_keep():
    given, exact = wide_market(), ExactSolver()
    full = exact.solve(given, 0.2)
    for app_id, found in exact.without(given, sorted(full.wins), 1.0).items():
        kept = {app: win for app, win in full.wins.items() if app != app_id}
        assert worth(given.bids, found.wins) >= worth(given.bids, kept)


@pytest.mark.parametrize("empty_bundle", EmptyBundle)
def test_tables_out_of_time_are_no_worse_than_one_price_and_their_gaps_cover_the_optimum(monkeypatch, empty_bundle):
    """The relaxation alone would say a gap without end where it was not even begun."""
    monkeypatch.setattr(_core, "best_of_tables", out_of_time(_core.best_of_tables))
    by_one_price = 0
    for seed in range(8):
        given = random_market(seed, replace(EIGHT_TABLES, empty_bundle=empty_bundle))
        hasty, exact = ExactSolver().solve(given, 0.0), tables_made_ready(given)
        full = exact.solve(given, 60.0)
        assert infeasible(given, full.wins) == []
        assert (full.positive, full.log_objective) >= (hasty.positive, hasty.log_objective)
        assert full.gap <= hasty.gap
        by_one_price += full.gap > 0.0
        covers(full, HighsSolver().solve(given, 60.0))
        for app_id, found in exact.without(given, sorted(full.wins)[:3], 60.0).items():
            kept = {app: win for app, win in full.wins.items() if app != app_id}
            assert worth(given.bids, found.wins) >= worth(given.bids, kept)
            covers(found, HighsSolver().solve(given.without(app_id), 60.0))
    assert by_one_price > 2


def out_of_time(true):
    """The search of tables with no time, whatever it is told."""
    return lambda tables, skip, seconds, *rest: true(tables, skip, 0.0, *rest)


def test_problems_of_tables_end_with_the_time_of_all(monkeypatch):
    """Each takes a second whatever it is told, of 4 for all winners: four are begun."""
    given, clock = many_tables(), SimpleNamespace(now_s=100.0, begun=0)
    exact = tables_made_ready(given)
    full = exact.solve(given, 60.0)
    forget_unused(exact)
    true = _core.best_of_tables

    def slow(*told):
        clock.begun, clock.now_s = clock.begun + 1, clock.now_s + 1.0
        return out_of_time(true)(*told)

    monkeypatch.setattr(_core, "best_of_tables", slow)
    for module in (solver, tables):
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: clock.now_s))
    assert len(exact.without(given, sorted(full.wins), 4.0)) == len(full.wins) > 8
    assert (clock.begun, clock.now_s) == (4, 104.0)


def test_tables_past_their_nodes_are_held_to_limits_only_while_there_is_time(monkeypatch):
    """The knapsack's market is not made ready past the deadline; the search's own choice stands."""
    given, seen = many_tables(), []
    exact = tables_made_ready(given)
    before = exact.solve(given, 60.0)
    true = _core.best_of_tables

    def too_wide(*told):
        return (tables._TOO_WIDE, *true(*told)[1:])

    def late(market, *, deadline_s):
        seen.append(deadline_s)
        raise OutOfTimeError

    monkeypatch.setattr(_core, "best_of_tables", too_wide)
    monkeypatch.setattr(tables, "CompiledMarket", late)
    monkeypatch.setattr(tables, "time", SimpleNamespace(monotonic=lambda: 100.0))
    assert exact._ready.solution(None, 160.0) == before
    assert seen == [160.0]


def worth(bids, wins):
    """What a choice is worth: how many have something, then the log of the product of their values."""
    values = [each.rows[wins[each.app_id].row].value if each.app_id in wins else each.empty_value for each in bids]
    logs = [math.log(value) for value in values if value > 0]
    return len(logs), round(math.fsum(logs), 9)


class Ticking:
    """A clock that goes on by a second with each attempt at places, none of which finds any."""

    def __init__(self, monkeypatch):
        self.now_s = 100.0
        for module in (problem, learning):
            monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: self.now_s))
        for name in ("made_up", "dealt"):
            monkeypatch.setattr(Places, name, self.tried)

    def tried(self, *_):
        self.now_s += 1.0


def choices():
    """Choices that fit, so that no limit is broken, each with its market made ready; racks come in every other."""
    for seed in range(12):
        levels = (Level.RACK, Level.MACHINE) if seed % 2 else (Level.SLOT, Level.MACHINE)
        compiled = CompiledMarket(
            random_market(seed, replace(MANY, machines=20, bidders=16, pinned=False, units=False, levels=levels))
        )
        starts = compiled.arrays.rows.row_start.tolist()
        rows = [random.Random(seed).randrange(start, end) for start, end in itertools.pairwise(starts) if end > start]
        while isinstance(compiled.places.pack(np.array(rows, dtype=np.int32)), int):
            rows.pop()
        yield compiled, np.array(rows, dtype=np.int32)


def test_places_are_looked_for_no_longer_than_there_is_time(monkeypatch):
    """The attempt that is begun in time is the last."""
    clock, took_s = Ticking(monkeypatch), []
    for compiled, rows in choices():
        before = clock.now_s
        assert compiled.settle(rows, math.inf) is None
        took_s.append(clock.now_s - before)
        for time_s in (0.0, 1.5, 4.0):
            before = clock.now_s
            assert compiled.settle(rows, before + time_s) is None
            assert clock.now_s - before <= min(took_s[-1], math.ceil(time_s) + 1.0)
    assert sum(seconds >= 5.0 for seconds in took_s) > 6


@pytest.mark.parametrize(("time_s", "tries"), [(-1.0, 1), (0.5, 1), (1.5, 2), (1000.0, 6)])
def test_the_full_market_looks_quickly_first_and_thoroughly_while_there_is_time(monkeypatch, time_s, tries):
    """A quick attempt is always made, and takes a second; how many follow is a matter of time."""
    clock, looked_at = Ticking(monkeypatch), []
    ready = [(compiled, rows) for compiled, rows in choices() if compiled.arrays.kinds[0].level is not Level.SLOT]
    monkeypatch.setattr(Places, "pack", lambda *given: 0)
    for compiled, rows in ready:
        before = clock.now_s
        assert problem._Problem(compiled, -1, before + time_s, before + time_s)._placed(rows) is None
        looked_at.append(clock.now_s - before)
    assert max(looked_at) == tries


def test_next_best_choices_are_not_looked_at_past_the_deadline(monkeypatch):
    """None of a thousand choices fits, and each takes a second to know that of."""
    clock, given = Ticking(monkeypatch), random_market(1, MANY)
    compiled = CompiledMarket(given)
    whole = problem._Problem(compiled, -1, clock.now_s + 5.0, clock.now_s + 5.0)
    decided = []

    def fits_not(self, chosen):
        clock.now_s += 1.0
        decided.append(chosen)
        return False

    monkeypatch.setattr(_core, "choices", lambda *given: (0, 1_000, 0))
    monkeypatch.setattr(Places, "pack", lambda *given: 0)
    monkeypatch.setattr(problem._Problem, "_searched", fits_not)
    monkeypatch.setattr(problem._Problem, "_remainder", lambda self, most: most)
    assert whole._next_best(7) == 7
    assert len(decided) == 5


def test_the_bound_without_each_bidder_is_what_the_prices_say_of_its_problem():
    for seed in range(10):
        compiled = CompiledMarket(random_market(seed, MANY))
        loss = np.empty(compiled.arrays.rows.rows, dtype=np.int64)
        compiled.known_bound(0)
        price = compiled.prices(-1)
        for skip in range(len(compiled.arrays.bids)):
            assert compiled.known_bound(skip) == _core.losses(compiled.problem, skip, price, loss)
