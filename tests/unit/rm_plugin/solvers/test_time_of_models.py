"""Time limits of mixed-integer solvers: reading bids and building models count, and neither is begun too late."""

import math
from types import SimpleNamespace

import pytest
from small_markets import bid, gang, machine, market, row

from rm_plugin.solvers import mip, port
from rm_plugin.solvers.bidders import bidders_of
from rm_plugin.solvers.highs import run_highs
from rm_plugin.solvers.machine_model import build_model
from rm_plugin.solvers.mip import Answer, solve_by
from rm_plugin.solvers.port import Solution, SolveStatus, each_alone
from themis.cluster import Level

MARKET = market(
    [machine("m0", 4)],
    *(bid(app, 0.1, row(0.5, gang(1, Level.MACHINE)), row(0.8, gang(3, Level.MACHINE))) for app in "abcd"),
)


class Clock:
    """A clock that stands still until a test moves it; models take `model_s` to build."""

    def __init__(self, monkeypatch, model_s):
        self.now_s = 100.0
        self.models = 0
        self.model_s = model_s
        for module in (mip, port):
            monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: self.now_s))
        monkeypatch.setattr(mip, "build_model", self.build)

    def build(self, machines, bidders):
        self.models += 1
        self.now_s += self.model_s
        return build_model(machines, bidders)


class Counted:
    """HiGHS by the clock: how long each run was given, and how long it took."""

    name = "counted"

    def __init__(self, clock, run_s=0.0):
        self.given_s = []
        self.clock = clock
        self.run_s = run_s

    def run(self, model, gains, time_limit_s, at_least=None):
        self.given_s.append(time_limit_s)
        self.clock.now_s += self.run_s
        return run_highs(model, gains, 60.0, at_least)

    def solve(self, given, time_limit_s) -> Solution:
        return solve_by(self.run, given, bidders_of, time_limit_s)


def test_a_run_gets_the_time_that_the_model_left(monkeypatch):
    solver = Counted(Clock(monkeypatch, model_s=4.0))
    assert solver.solve(MARKET, 10.0).status is SolveStatus.OPTIMAL
    assert solver.given_s == [6.0]


def test_the_second_stage_gets_the_time_left_by_the_first(monkeypatch):
    solver = Counted(Clock(monkeypatch, model_s=4.0), run_s=1.0)
    poor = market(MARKET.machines, bid("poor", 0.0, row(0.3, gang(3, Level.MACHINE))), *MARKET.bids, lexicographic=True)
    assert solver.solve(poor, 10.0).status is SolveStatus.OPTIMAL
    assert solver.given_s == [6.0, 5.0]


def test_a_model_that_took_all_the_time_is_not_run(monkeypatch):
    solver = Counted(Clock(monkeypatch, model_s=11.0))
    solution = solver.solve(MARKET, 10.0)
    assert (solution.status, dict(solution.wins), solver.given_s) == (SolveStatus.TIME_LIMIT, {}, [])
    best = Counted(Clock(monkeypatch, model_s=0.0)).solve(MARKET, 10.0)
    assert solution.log_objective + solution.gap >= best.log_objective > solution.log_objective


def test_problems_that_no_time_is_left_for_are_answered_without_a_model(monkeypatch):
    clock = Clock(monkeypatch, model_s=3.0)
    solver = Counted(clock)
    solutions = each_alone(solver, MARKET, ["a", "b", "c", "d"], 8.0)
    # Parts of 2, 5 / 3 and 1 s, each of which its model takes; then nothing is left, and nothing is built.
    assert clock.models == 3
    assert clock.now_s == 109.0
    assert [solution.status for solution in solutions.values()] == [SolveStatus.TIME_LIMIT] * 4


def test_unused_time_goes_to_later_problems(monkeypatch):
    solver = Counted(Clock(monkeypatch, model_s=0.0))
    each_alone(solver, MARKET, ["a", "b", "c", "d"], 8.0)
    assert solver.given_s == pytest.approx([2.0, 8 / 3, 4.0, 8.0])


def test_a_market_without_possible_winners_is_optimal_without_time(monkeypatch):
    solver = Counted(Clock(monkeypatch, model_s=1.0))
    hopeless = market(MARKET.machines, bid("a", 0.1, row(0.5, gang(9, Level.MACHINE))))
    solution = solver.solve(hopeless, 0.0)
    assert (solution.status, solution.gap, dict(solution.wins)) == (SolveStatus.OPTIMAL, 0.0, {})


def test_a_second_stage_out_of_time_has_a_gap_that_covers_the_optimum():
    """Of values below 1 the sum is larger where the poorest wins nothing, whatever the best row of each is worth."""
    poor = market(
        [machine("m0", 1), machine("m1", 1)],
        *(bid(app, 0.0, row(value, gang(1, Level.MACHINE))) for app, value in {"a": 0.5, "b": 0.5, "c": 0.2}.items()),
        lexicographic=True,
    )
    runs = []

    def without_a_second(model, gains, time_limit_s, at_least=None):
        runs.append(at_least)
        if at_least is None:
            return run_highs(model, gains, 60.0)
        return Answer(status=SolveStatus.TIME_LIMIT, solution=None, bound=math.inf)

    found = solve_by(without_a_second, poor, bidders_of, 60.0)
    best = solve_by(run_highs, poor, bidders_of, 60.0)
    assert [at_least is None for at_least in runs] == [True, False]
    assert (found.status, found.positive, best.positive) == (SolveStatus.TIME_LIMIT, 2, 2)
    assert found.log_objective <= best.log_objective <= found.log_objective + found.gap
