"""A small audit of every family in each run of the tests, a larger one among the slow ones, the largest each night."""

import pytest

from rm_plugin.solvers.registry import solver
from themis_lab.audit.case import Mechanism
from themis_lab.audit.families import FAMILIES
from themis_lab.audit.fuzzing import FuzzPlan, FuzzResult, fuzz
from themis_lab.audit.report import text

SMALL = sorted(set(FAMILIES) - {"testbed", "large"})
nightly = pytest.param(3, marks=pytest.mark.nightly)


def audited(names, markets, seed, solver_name="exact", worlds=0):
    plan = FuzzPlan(
        families=[FAMILIES[name] for name in names],
        markets=markets * len(names),
        seed=seed,
        mechanism=Mechanism(make_solver=lambda: solver(solver_name)),
        worlds=worlds,
    )
    return plan, fuzz(plan, FuzzResult(), keep_going=lambda: True, on_market=lambda found: None)


def assert_clean(plan, found):
    assert not found.broken, text(plan, found)
    assert not found.unsolved.total()


def test_a_small_audit_of_every_small_family_finds_nothing():
    plan, found = audited(SMALL, markets=2, seed=11, worlds=1)
    assert_clean(plan, found)
    assert all(found.checked[name] for name in plan.properties)


def test_where_valuations_are_of_degree_one_no_lie_pays_by_any_count():
    """The promise of the theory. `themis_lab.audit.misreports` explains the ways of counting."""
    _, found = audited(["homogeneous"], markets=4, seed=12)
    gains = {measure: max(tally.values) for (measure, _), tally in found.tallies.items() if "misreport" in measure}
    assert len(gains) == 8
    assert max(gains.values()) < 1e-6


def test_where_apps_keep_gpus_a_lie_may_pay():
    """The limit of the theory: the kept win does not scale with the payment."""
    _, found = audited(["homogeneous-kept"], markets=5, seed=12)
    assert max(found.tallies["misreport_factor_win", "homogeneous-kept"].values) > 0.05


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("times", [1, nightly])
@pytest.mark.parametrize("name", sorted(FAMILIES))
def test_a_larger_audit_finds_nothing(name, times):
    markets = times * {"testbed": 4, "large": 1}.get(name, 20)
    assert_clean(*audited([name], markets=markets, seed=13))


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("times", [1, nightly])
def test_the_reference_solver_holds_too(times):
    assert_clean(*audited(SMALL, markets=2 * times, seed=14, solver_name="highs"))
