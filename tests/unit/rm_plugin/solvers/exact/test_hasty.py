"""Markets that no time is left to make ready: a choice that fits, and a gap that holds."""

from types import SimpleNamespace

import numpy as np
import pytest
from small_markets import bid, covers, gang, machine, market, row, rows_won

from rm_plugin.arbiter.auction import run_auction
from rm_plugin.solvers.brute_force import BruteForceSolver
from rm_plugin.solvers.exact import _core, compiled, solver
from rm_plugin.solvers.exact.compiled import CompiledMarket
from rm_plugin.solvers.exact.hasty import HastyMarket
from rm_plugin.solvers.exact.solver import ExactSolver
from rm_plugin.solvers.port import SolveStatus
from themis.choices import EmptyBundle
from themis.cluster import Level
from themis_lab.audit.feasibility import infeasible
from themis_lab.audit.recipes import Recipe, random_market

RECIPES = {
    "anything": Recipe(),
    "slots": Recipe(levels=(Level.SLOT, Level.MACHINE), slot_gpus=4, pinned=False),
    "racks": Recipe(machines=5, racks=3, sizes=(2, 4, 6), levels=(Level.RACK, Level.MACHINE)),
    "pinned": Recipe(pinned_gangs=True, units=False, bidders=4),
    "tables": Recipe(explicit=True, bidders=4),
    "lexicographic": Recipe(empty_bundle=EmptyBundle.LEXICOGRAPHIC, bidders=4, rows=3),
}


@pytest.mark.parametrize("name", RECIPES)
def test_a_hasty_choice_fits_and_its_gap_covers_what_is_lost(name):
    won, lost = 0, 0
    for seed in range(25):
        given = random_market(seed, RECIPES[name])
        exact = ExactSolver()
        full = exact.solve(given, 0.0)
        assert infeasible(given, full.wins) == [], seed
        covers(full, BruteForceSolver().solve(given, 60.0))
        for app_id, found in exact.without(given, sorted(full.wins), 0.0).items():
            covers(found, BruteForceSolver().solve(given.without(app_id), 60.0))
        won, lost = won + len(full.wins), lost + (full.gap > 0.0)
    assert won > 30
    assert lost > 5


def test_where_everybody_wins_its_best_row_that_is_proven():
    given = market(
        [machine("m0", 4), machine("m1", 4)], *(bid(app, 0.1, row(0.9, gang(2, Level.SLOT))) for app in "abc")
    )
    found = ExactSolver().solve(given, 0.0)
    assert (found.status, found.gap, rows_won(found)) == (SolveStatus.OPTIMAL, 0.0, {"a": 0, "b": 0, "c": 0})


def test_what_costs_nothing_is_wished_for_no_larger_than_it_must_be():
    """Where best rows fit without a price nobody is paid for GPUs: of equal gains a takes one, and leaves b its own."""
    given = market(
        [machine("m0", 4)],
        bid("a", 0.1, row(0.9, m0=1), row(0.9, gang(4, Level.MACHINE))),
        bid("b", 0.1, row(0.9, gang(3, Level.MACHINE))),
    )
    found = ExactSolver().solve(given, 0.0)
    assert (found.status, found.gap, rows_won(found)) == (SolveStatus.OPTIMAL, 0.0, {"a": 0, "b": 0})


def test_a_market_without_rows_that_can_win_is_proven():
    given = market([machine("m0", 2)], bid("a", 0.1, row(0.9, gang(9, Level.MACHINE))), bid("b", 0.1))
    assert run_auction(given, ExactSolver(), 0.0).optimal


def test_the_order_of_bidders_and_rows_does_not_matter():
    for seed in range(20):
        given = random_market(seed, RECIPES["pinned"])
        turned = market(given.machines[::-1], *(bid(b.app_id, b.empty_value, *b.rows[::-1]) for b in given.bids[::-1]))
        first, second = (ExactSolver().solve(each, 0.0) for each in (given, turned))
        assert first.gap == second.gap
        assert {app: win.gangs for app, win in first.wins.items()} == {
            app: win.gangs for app, win in second.wins.items()
        }


@pytest.mark.parametrize(
    ("steps", "ready"), [(0, HastyMarket), (1, HastyMarket), (2, HastyMarket), (3, CompiledMarket)]
)
def test_the_clock_is_looked_at_between_the_steps_of_making_ready(monkeypatch, steps, ready):
    """By a clock that goes on by a second with each look, past a limit of so many: reading, limits, pruning."""
    looks = iter(range(1, 100))
    clock = SimpleNamespace(monotonic=lambda: float(next(looks)))
    for module in (solver, compiled):
        monkeypatch.setattr(module, "time", clock)
    exact = ExactSolver()
    exact.solve(random_market(1, RECIPES["anything"]), steps + 0.5)
    assert type(exact._ready) is ready


def test_with_time_the_same_market_is_made_ready_after_all():
    given, exact = random_market(3, RECIPES["anything"]), ExactSolver()
    exact.solve(given, 0.0)
    assert exact.solve(given, 60.0) == ExactSolver().solve(given, 60.0)


def test_rows_are_compared_with_no_more_than_a_thousand_others():
    """Of rows that need more of one thing the less they need of the other none is beaten; the last is, by each."""
    rows = 1_500
    need = np.array([(each, rows - each) for each in range(rows)] + [(rows, rows)] * 2, dtype=np.int32)
    keep = np.empty(rows + 2, dtype=np.uint8)
    nothing = np.zeros(0, dtype=np.int32)

    def kept():
        starts = np.zeros(len(need) + 1, dtype=np.int32)
        _core.prune(np.array([0, len(need)], dtype=np.int32), 2, need, starts, nothing, nothing, keep)
        return keep.tolist()

    assert kept() == [1] * rows + [0, 0]
    # Only rows that stand further up than a thousand beat these: they stay.
    need[-2:] = (200, rows - 200), (600, rows - 600)
    assert kept() == [1] * (rows + 1) + [0]
