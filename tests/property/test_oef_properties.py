"""What OEF's programmes promise, on random instances. What the paper claims and does not hold is asserted nowhere."""

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from oef_cases import instance, random_capacity, random_rows, solve
from scipy.optimize import linprog

from rm_plugin.policies.oef.audit import envy_matrix, gain_from_lie, pareto_gap, sharing_incentive
from rm_plugin.policies.oef.baselines.gandiva_fair import gandiva_fair
from rm_plugin.policies.oef.cooperative import cooperative
from rm_plugin.policies.oef.evaluator import evaluate
from rm_plugin.policies.oef.fair_share import ShareStatus
from rm_plugin.policies.oef.registry import RULES, rule_named
from rm_plugin.policies.oef.speedup import Instance, Tenant, normalise
from rm_plugin.solvers.highs_linear import HighsModel

SEEDS = range(20)
EVERY_TYPES = (2, 3, 4)


def draw(seed, types, most=6):
    rng = random.Random(f"{seed} {types}")
    tenants = rng.randint(2, most)
    weights = [rng.choice((0.5, 1, 1, 2, 3)) for _ in range(tenants)]
    return rng, random_rows(rng, tenants, types), random_capacity(rng, types), weights


def resolved(rule, fair, step):
    """By type, the efficiencies of a new solve with `step` more devices of it."""
    for number, devices in enumerate(fair.speedups.capacity):
        capacity = fair.speedups.capacity.copy()
        capacity[number] = devices + step
        yield rule_named(rule, HighsModel)(replace(fair.speedups, capacity=capacity)).efficiencies


@pytest.mark.parametrize("types", EVERY_TYPES)
@pytest.mark.parametrize("seed", SEEDS)
class TestRandomInstances:
    def test_noncooperative_efficiencies_are_equal_by_weight(self, seed, types):
        _, rows, capacity, weights = draw(seed, types)
        fair = solve("noncooperative", rows, capacity, weights)
        per_weight = fair.efficiencies / fair.speedups.weights
        assert per_weight == pytest.approx(np.full(len(rows), per_weight[0]), rel=1e-7)
        assert pareto_gap(fair, HighsModel) <= 1e-6 * fair.total
        assert (fair.matrix > 0).sum() <= len(rows) + types - 1

    @pytest.mark.parametrize("rule", ["cooperative", "noncooperative", "pure_efficiency"])
    def test_marginals_are_what_solving_again_with_more_devices_gains(self, rule, seed, types):
        _, rows, capacity, weights = draw(seed, types)
        fair = solve(rule, rows, capacity, weights)
        less, more = (
            np.column_stack([(again - fair.efficiencies) / step for again in resolved(rule, fair, step)])
            for step in (-1e-5, 1e-5)
        )
        totals = fair.marginals.sum(axis=0)
        assert (more.sum(axis=0) <= totals + 1e-5).all() and (totals <= less.sum(axis=0) + 1e-5).all()
        whole = np.array([again.sum() - fair.total for again in resolved(rule, fair, 1.0)])
        assert (whole <= totals + 1e-6).all()
        # Where the optimum bends, a basis can tell what one side of the bend gains.
        smooth = np.isclose(less, more, atol=1e-4).all(axis=0)
        assert fair.marginals[:, smooth] == pytest.approx(more[:, smooth], abs=1e-3)

    def test_noncooperative_pays_no_inflation(self, seed, types):
        rng, rows, capacity, weights = draw(seed, types)
        liar = rng.randrange(len(rows))
        claim = tuple(value * (1 if number == 0 else rng.uniform(1, 2)) for number, value in enumerate(rows[liar]))
        rule = rule_named("noncooperative", HighsModel)
        assert gain_from_lie(instance(rows, capacity, weights), rule, f"u{liar + 1}", claim) <= 1e-6

    def test_cooperative_has_no_envy_and_an_incentive_to_share(self, seed, types):
        _, rows, capacity, weights = draw(seed, types)
        fair = solve("cooperative", rows, capacity, weights)
        assert envy_matrix(fair).max() <= 1e-5
        assert min(sharing_incentive(fair).values()) >= 1 - 1e-6
        assert fair.matrix.sum(axis=0) == pytest.approx(np.array(capacity, dtype=float))

    def test_cooperative_by_generated_rows_equals_the_full_programme(self, seed, types):
        _, rows, capacity, weights = draw(seed, types, most=9)
        speedups = normalise(instance(rows, capacity, weights))
        full = cooperative(speedups, HighsModel, generate_rows=False)
        assert cooperative(speedups, HighsModel).total == pytest.approx(full.total, rel=1e-6)

    def test_cooperative_equals_a_second_solver(self, seed, types):
        _, rows, capacity, weights = draw(seed, types)
        speedups = normalise(instance(rows, capacity, weights))
        total = cooperative(speedups, HighsModel).total
        assert interior_point_total(speedups) == pytest.approx(total, rel=1e-5)

    def test_more_capacity_never_lowers_the_optimum(self, seed, types):
        rng, rows, capacity, weights = draw(seed, types)
        number = rng.randrange(types)
        more = [devices + (place == number) for place, devices in enumerate(capacity)]
        for rule in ("cooperative", "noncooperative"):
            before, after = (solve(rule, rows, devices, weights).total for devices in (capacity, more))
            assert after >= before - 1e-6

    def test_whole_weights_equal_replicated_tenants(self, seed, types):
        rng, rows, capacity, _ = draw(seed, types, most=4)
        weights = [rng.randint(1, 3) for _ in rows]
        copies = [row for row, weight in zip(rows, weights, strict=True) for _ in range(weight)]
        for rule in ("cooperative", "noncooperative"):
            assert solve(rule, rows, capacity, weights).total == pytest.approx(solve(rule, copies, capacity).total)

    def test_the_scale_of_weights_and_the_order_of_tenants_do_not_matter(self, seed, types):
        _, rows, capacity, weights = draw(seed, types)
        for rule in ("cooperative", "noncooperative"):
            one = solve(rule, rows, capacity, weights)
            other = solve(rule, rows[::-1], capacity, [7 * weight for weight in weights[::-1]])
            assert list(one.efficiency.values()) == pytest.approx(list(other.efficiency.values())[::-1])

    def test_baselines_keep_their_guarantees(self, seed, types):
        _, rows, capacity, _ = draw(seed, types)
        assert pareto_gap(solve("gavel", rows, capacity), HighsModel) <= 1e-6 * 100
        for rule in ("gavel", "gandiva_fair", "incentive_only"):
            assert min(sharing_incentive(solve(rule, rows, capacity)).values()) >= 1 - 1e-6
        best = solve("pure_efficiency", rows, capacity).total
        assert all(solve(rule, rows, capacity).total <= best + 1e-6 for rule in RULES)


speedup_values = st.one_of(st.just(0.0), st.floats(1e-3, 1e3))


@st.composite
def wild_instances(draw):
    """Instances with zeros, equal and falling vectors, idle types and weights far apart."""
    types, tenants = draw(st.integers(1, 4)), draw(st.integers(1, 6))
    vectors = st.lists(speedup_values, min_size=types, max_size=types).filter(any)
    capacity = draw(st.lists(st.integers(0, 10_000), min_size=types, max_size=types).filter(any))
    return Instance(
        types=tuple(f"g{number}" for number in range(types)),
        capacity=tuple(capacity),
        tenants=tuple(
            Tenant(tenant_id=f"u{number}", speedup=tuple(draw(vectors)), weight=draw(st.floats(0.01, 100)))
            for number in range(tenants)
        ),
    )


@settings(max_examples=200, deadline=None)
@given(wild_instances(), st.sampled_from(list(RULES)))
def test_any_instance_is_solved_within_capacity(wild, rule):
    fair = evaluate(wild, rule_named(rule, HighsModel))
    assert fair.status is ShareStatus.OPTIMAL
    assert (fair.matrix >= 0).all()
    assert (fair.matrix.sum(axis=0) <= np.array(wild.capacity) * (1 + 1e-9)).all()
    assert set(fair.share) == {tenant.tenant_id for tenant in wild.tenants}


@settings(max_examples=100, deadline=None)
@given(wild_instances())
def test_cooperative_envies_no_more_than_the_tolerance_on_any_instance(wild):
    fair = solve_cooperative(wild)
    scale = max(wild.capacity) * max(fair.speedups.matrix.max(initial=1.0), 1.0) * 100
    assert envy_matrix(fair).max(initial=0.0) <= 1e-5 * scale


@settings(max_examples=100, deadline=None)
@given(wild_instances())
def test_gandiva_fair_trades_end_and_never_lower_efficiency(wild):
    speedups = normalise(wild)
    before = rule_named("max_min", HighsModel)(speedups).efficiencies
    assert (gandiva_fair(speedups).efficiencies >= before * (1 - 1e-6) - 1e-6).all()


def solve_cooperative(wild):
    return cooperative(normalise(wild), HighsModel)


def interior_point_total(speedups):
    """Equation 10 written out again, and solved by an interior-point method."""
    tenants, types = speedups.matrix.shape
    capacity = np.tile(np.eye(types), tenants)
    envy = np.zeros((tenants * (tenants - 1), tenants * types))
    pairs = ((one, other) for one in range(tenants) for other in range(tenants) if one != other)
    for number, (one, other) in enumerate(pairs):
        row = speedups.matrix[one]
        envy[number, one * types : (one + 1) * types] = -row / speedups.weights[one]
        envy[number, other * types : (other + 1) * types] = row / speedups.weights[other]
    solved = linprog(
        -speedups.matrix.ravel(),
        A_ub=np.vstack((capacity, envy)),
        b_ub=np.concatenate((speedups.capacity, np.zeros(len(envy)))),
        method="highs-ipm",
    )
    return -solved.fun
