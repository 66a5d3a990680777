"""Cooperative OEF with tenants that cannot use any number of GPUs, against other formulations of the same fairness."""

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import UNSET
from msgspec.structs import replace
from oef_cases import B, instance, random_capacity, random_rows
from scipy.optimize import Bounds, LinearConstraint, linprog, milp

from rm_plugin.policies.oef.audit import (
    envy_matrix,
    gain_from_lie,
    largest_envy,
    pareto_gap,
    sharing_incentive,
)
from rm_plugin.policies.oef.evaluator import evaluate
from rm_plugin.policies.oef.fair_share import ShareStatus
from rm_plugin.policies.oef.registry import RULES, rule_named
from rm_plugin.policies.oef.speedup import normalise
from rm_plugin.solvers.highs_linear import HighsModel


def bounded(rows, capacity, demands, weights=None):
    """An instance with demands; None for a tenant without one."""
    plain = instance(rows, capacity, weights)
    tenants = zip(plain.tenants, demands, strict=True)
    return replace(
        plain, tenants=tuple(replace(each, demand=UNSET if most is None else float(most)) for each, most in tenants)
    )


def solved(case, rule="cooperative"):
    return evaluate(case, rule_named(rule, HighsModel))


def draw(seed):
    rng = random.Random(seed)
    tenants, types = rng.randint(2, 4), rng.randint(2, 3)
    rows, capacity = random_rows(rng, tenants, types), random_capacity(rng, types)
    demands = [rng.choice((None, rng.randint(1, sum(capacity)))) for _ in rows]
    return bounded(rows, capacity, demands, [rng.choice((1, 1, 2)) for _ in rows])


def used(speedup, gpus, demand):
    """What a tenant can use, GPU by GPU: the fastest first."""
    worth, left = 0.0, demand
    for number in sorted(range(len(gpus)), key=lambda number: -speedup[number]):
        taken = min(gpus[number], left)
        worth, left = worth + taken * speedup[number], left - taken
    return worth


class Arrays:
    """An instance in normal form as arrays, demands per weight."""

    def __init__(self, case):
        speedups = normalise(case)
        self.matrix, self.weights, self.capacity = speedups.matrix, speedups.weights, speedups.capacity
        self.tenants, self.types = speedups.matrix.shape
        demand = np.full(self.tenants, np.inf) if speedups.demand is None else speedups.demand
        self.demand = np.minimum(demand, self.capacity.sum()) / self.weights
        self.split = [
            used(row, self.capacity / self.weights.sum(), most)
            for row, most in zip(self.matrix, self.demand, strict=True)
        ]

    def split_level(self, tenant):
        """The speedup of the slowest GPU that a tenant uses of its part of the equal split; 0 if it can use all."""
        left = self.demand[tenant]
        for number in np.argsort(-self.matrix[tenant]):
            left -= self.capacity[number] / self.weights.sum()
            if left <= 1e-9:
                return self.matrix[tenant, number]
        return 0.0

    def own(self, tenant, values):
        row = np.zeros(self.tenants * self.types)
        row[tenant * self.types : (tenant + 1) * self.types] = values
        return row

    def common_rows(self):
        """Rows and upper bounds of capacity, demand, and what each tenant can use of the equal split."""
        rows = [np.tile(np.eye(self.types), self.tenants)[number] for number in range(self.types)]
        rows = [row * np.repeat(self.weights, self.types) for row in rows]
        rows += [self.own(tenant, 1.0) for tenant in range(self.tenants)]
        rows += [self.own(tenant, -self.matrix[tenant]) for tenant in range(self.tenants)]
        return rows, [*self.capacity, *self.demand, *(-worth for worth in self.split)]

    def envy_row(self, tenant, other, level):
        """The envy constraint at a level: a row and its upper bound."""
        slopes = np.maximum(self.matrix[tenant] - level, 0.0)
        return self.own(other, slopes) - self.own(tenant, self.matrix[tenant]), -level * self.demand[tenant]

    @property
    def pairs(self):
        return [(one, other) for one in range(self.tenants) for other in range(self.tenants) if one != other]

    @property
    def costs(self):
        return -(self.matrix * self.weights[:, None]).ravel()


def total_at_the_split(case):
    """The programme at the levels of the equal split, written out."""
    arrays = Arrays(case)
    rows, upper = arrays.common_rows()
    for tenant, other in arrays.pairs:
        row, bound = arrays.envy_row(tenant, other, arrays.split_level(tenant))
        rows.append(row)
        upper.append(bound)
    return -linprog(arrays.costs, A_ub=np.array(rows), b_ub=np.array(upper), method="highs-ipm").fun


def best_total(case):
    """The largest total without envy: every pair chooses its level, in a mixed integer programme."""
    arrays = Arrays(case)
    levels = arrays.types + 1
    shares, choices = arrays.tenants * arrays.types, len(arrays.pairs) * levels
    rows, upper = arrays.common_rows()
    rows = [np.concatenate((row, np.zeros(choices))) for row in rows]
    ones = []
    for number, (tenant, other) in enumerate(arrays.pairs):
        ones.append(np.zeros(shares + choices))
        for place, level in enumerate((0.0, *arrays.matrix[tenant])):
            row, bound = arrays.envy_row(tenant, other, level)
            # More than the constraint can be violated by.
            slack = float(np.maximum(row, 0.0) @ np.tile(arrays.capacity, arrays.tenants) * 10 - bound)
            choice = np.zeros(choices)
            choice[number * levels + place] = slack
            rows.append(np.concatenate((row, choice)))
            upper.append(bound + slack)
            ones[-1][shares + number * levels + place] = 1.0
    limits = [
        LinearConstraint(np.array(rows), -np.inf, np.array(upper)),
        LinearConstraint(np.array(ones), 1.0, 1.0),
    ]
    solution = milp(
        np.concatenate((arrays.costs, np.zeros(choices))),
        constraints=limits,
        integrality=np.concatenate((np.zeros(shares), np.ones(choices))),
        bounds=Bounds(0.0, np.concatenate((np.full(shares, np.inf), np.ones(choices)))),
        options={"mip_rel_gap": 1e-7},
    )
    return -solution.fun


@pytest.mark.parametrize("seed", range(25))
class TestRandomDemands:
    def test_no_tenant_gets_more_than_it_can_use_or_envies_or_loses_by_sharing(self, seed):
        case = draw(seed)
        fair = solved(case)
        tenants = {each.tenant_id: each for each in case.tenants}
        limit = {name: np.inf if each.demand is UNSET else each.demand for name, each in tenants.items()}
        assert all(sum(share) <= limit[name] + 1e-6 for name, share in fair.share.items())
        split = np.array(case.capacity) / sum(each.weight for each in case.tenants)
        for name, each in tenants.items():
            own = used(each.speedup, fair.share[name], limit[name])
            assert own >= used(each.speedup, each.weight * split, limit[name]) - 1e-5
            for other in case.tenants:
                theirs = np.array(fair.share[other.tenant_id]) * each.weight / other.weight
                assert own >= used(each.speedup, theirs, limit[name]) - 1e-5
        assert envy_matrix(fair).max() <= 1e-5
        assert min(sharing_incentive(fair).values()) >= 1 - 1e-6
        assert not largest_envy(fair, least=1e-5)

    def test_the_total_lies_between_the_programme_of_the_split_and_the_largest_without_envy(self, seed):
        case = draw(seed)
        total, best = solved(case).total, best_total(case)
        assert total_at_the_split(case) <= total * (1 + 1e-5)
        assert 0.96 * best <= total <= best * (1 + 1e-5)


def test_the_total_is_close_to_the_largest_without_envy_on_average():
    cases = [draw(f"mean {number}") for number in range(30)]
    assert np.mean([1.0 - solved(case).total / best_total(case) for case in cases]) <= 0.002


@pytest.mark.parametrize("seed", range(10))
def test_demand_for_all_devices_is_no_bound(seed):
    case = draw(seed)
    free = replace(case, tenants=tuple(replace(each, demand=UNSET) for each in case.tenants))
    large = replace(case, tenants=tuple(replace(each, demand=float(sum(case.capacity))) for each in case.tenants))
    assert normalise(large).demand is None
    assert solved(large).share == solved(free).share
    assert solved(large).prices == solved(free).prices


def test_tenant_that_can_use_one_of_ten_gpus_gets_it_and_the_other_nine():
    fair = solved(bounded([(1,), (1,)], [10], [1, None]))
    assert fair.share == {"u1": pytest.approx((1.0,)), "u2": pytest.approx((9.0,))}
    assert sharing_incentive(fair) == pytest.approx({"u1": 1.0, "u2": 9 / 5})
    assert largest_envy(fair) == {}
    plain = solved(bounded([(1,), (1,)], [10], [None, None]))
    assert plain.share == {"u1": pytest.approx((5.0,)), "u2": pytest.approx((5.0,))}


def test_the_example_of_the_page():
    rows, capacity = ((1, 2, 3), (1, 3, 7), (1, 2, 2.2)), [16, 8, 8]
    fair = solved(bounded(rows, capacity, [12, 12, 12]))
    assert list(fair.efficiency.values()) == pytest.approx([18.667, 43.048, 17.143], abs=1e-3)
    assert min(sharing_incentive(fair).values()) == pytest.approx(1.0)
    more = [evaluate_with(fair.speedups, number, 0.01).total for number in range(3)]
    assert [price * 0.01 for price in fair.prices] == pytest.approx([total - fair.total for total in more], abs=1e-6)


@pytest.mark.parametrize("seed", range(25))
def test_prices_are_what_further_devices_gain(seed):
    case = draw(seed)
    fair = solved(case)
    step = 1e-5
    for number, price in enumerate(fair.prices):
        less, more = (
            (evaluate_with(fair.speedups, number, sign * step).total - fair.total) / (sign * step) for sign in (-1, 1)
        )
        if more == pytest.approx(less, abs=1e-3):
            assert price == pytest.approx(more, abs=2e-3)
            assert fair.marginals[:, number].sum() == pytest.approx(price, abs=1e-5)


def evaluate_with(speedups, number, step):
    """The shares with `step` more devices of a type."""
    capacity = speedups.capacity.copy()
    capacity[number] += step
    return rule_named("cooperative", HighsModel)(replace(speedups, capacity=capacity))


def test_every_rule_counts_what_tenants_can_use():
    case = bounded(B, [4, 4], [1, None])
    for rule in RULES:
        fair = solved(case, rule)
        assert fair.efficiency["u1"] <= 2.0 + 1e-9
        assert pareto_gap(fair, HighsModel) >= 0.0
    # Half of all GPUs, of which the first uses one V100.
    assert solved(case, "max_min").efficiency == pytest.approx({"u1": 2.0, "u2": 12.0})


def test_gain_from_a_lie_keeps_demands():
    case = bounded(B, [4, 4], [1, None])
    gain = gain_from_lie(case, rule_named("cooperative", HighsModel), "u1", (1.0, 4.0))
    assert gain == pytest.approx(0.0, abs=1e-6)


@st.composite
def wild_instances(draw_from):
    """Instances with zeros, equal and falling vectors, idle types, and demands and weights far apart."""
    types, tenants = draw_from(st.integers(1, 4)), draw_from(st.integers(1, 6))
    speeds = st.lists(st.one_of(st.just(0.0), st.floats(1e-2, 1e2)), min_size=types, max_size=types).filter(any)
    capacity = draw_from(st.lists(st.integers(0, 1000), min_size=types, max_size=types).filter(any))
    demands = st.one_of(st.none(), st.floats(1e-2, 2000))
    return bounded(
        [tuple(draw_from(speeds)) for _ in range(tenants)],
        capacity,
        [draw_from(demands) for _ in range(tenants)],
        [draw_from(st.floats(0.1, 10)) for _ in range(tenants)],
    )


@settings(max_examples=200, deadline=None)
@given(wild_instances())
def test_any_instance_is_solved_within_capacity_and_demand(wild):
    fair = solved(wild)
    assert fair.status is ShareStatus.OPTIMAL
    assert (fair.matrix.sum(axis=0) <= np.array(wild.capacity) * (1 + 1e-9)).all()
    limits = [np.inf if each.demand is UNSET else each.demand for each in wild.tenants]
    assert all(
        sum(fair.share[each.tenant_id]) <= limit + 1e-4 for each, limit in zip(wild.tenants, limits, strict=True)
    )
    scale = max(wild.capacity) * max(fair.speedups.matrix.max(initial=1.0), 1.0) * 10
    assert envy_matrix(fair).max(initial=0.0) <= 1e-5 * scale
