"""Gurobi's licence, absence and silence; what it finds is tested with every solver."""

import subprocess
import sys

import pytest
from small_markets import bid, gang, machine, market, row

from rm_plugin.solvers.gurobi import GurobiSolver
from rm_plugin.solvers.port import SolveStatus
from themis.cluster import Level
from themis.errors import InputError, ThemisError

SMALL = market([machine("m0", 4)], bid("a", 0.1, row(0.5, gang(2, Level.MACHINE))))


def too_large():
    """More rows than a gurobipy without a key takes variables, none of which beats another."""
    machines = [machine("m0", 40), machine("m1", 40)]
    bids = [
        bid(f"a{index:02}", 0.001, *(row(size / 100, gang(size, Level.CLUSTER)) for size in range(1, 41)))
        for index in range(51)
    ]
    return market(machines, *bids)


def test_a_market_past_the_licence_has_a_typed_status_and_no_winner():
    solution = GurobiSolver().solve(too_large(), 10.0)
    assert (solution.status, dict(solution.wins)) == (SolveStatus.LICENCE, {})
    assert 0 < solution.gap < 1000


def test_a_solver_goes_on_after_a_market_past_its_licence():
    solver = GurobiSolver()
    solver.solve(too_large(), 10.0)
    assert set(solver.solve(SMALL, 10.0).wins) == {"a"}


def test_gurobi_says_nothing(capfd):
    GurobiSolver().solve(SMALL, 10.0)
    assert capfd.readouterr() == ("", "")


def test_missing_gurobipy_is_reported_with_the_install_command(monkeypatch):
    monkeypatch.setitem(sys.modules, "gurobipy", None)
    with pytest.raises(InputError, match=r"pip install 'themis-scheduler\[gurobi\]'"):
        GurobiSolver()


def test_another_failure_of_gurobi_is_an_error_of_ours(monkeypatch):
    import gurobipy

    def fails(self):
        raise gurobipy.GurobiError(gurobipy.GRB.Error.OUT_OF_MEMORY, "no memory")

    monkeypatch.setattr(GurobiSolver, "_environment", fails)
    with pytest.raises(ThemisError, match=r"Gurobi failed.*choose another solver"):
        GurobiSolver().solve(SMALL, 10.0)


def test_other_solvers_do_not_import_gurobi():
    script = "import sys, rm_plugin.solvers.registry as r; r.solver('highs'); sys.exit('gurobipy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], check=False, timeout=60).returncode == 0
