"""The examples of the OEF paper (Middleware'24), recomputed exactly. Comments name other numbers in the paper."""

from itertools import accumulate
from operator import mul
from random import Random

import pytest
from oef_cases import A, B, C, D, instance, solve

from rm_plugin.policies.oef.audit import envy_matrix, gain_from_lie, largest_envy, one_more, pareto_gap, true_efficiency
from rm_plugin.policies.oef.baselines.gandiva_fair import trades_of
from rm_plugin.policies.oef.registry import rule_named
from rm_plugin.policies.oef.speedup import Instance, normalise, virtual_tenants
from rm_plugin.solvers.highs_linear import HighsModel


def near(*rows):
    return [pytest.approx(row, abs=1e-9) for row in rows]


def share(fair):
    return list(fair.share.values())


def efficiency(fair):
    return list(fair.efficiency.values())


def gain(rule, rows, liar, claim, capacity=None):
    return gain_from_lie(instance(rows, capacity), rule_named(rule, HighsModel), liar, claim)


# ---- baselines -------------------------------------------------------------------------------------------------------


def test_gandiva_fair_trades_at_the_papers_prices():
    fair = solve("gandiva_fair", A)
    assert share(fair) == near((1, 4 / 45), (0, 7 / 15), (0, 4 / 9))
    # The paper prints 1.41 and 1.76, computed from rounded shares.
    assert efficiency(fair) == pytest.approx([1 + 8 / 45, 1.4, 16 / 9])
    assert fair.total == pytest.approx(196 / 45)
    _, trades = trades_of(normalise(instance(A)))
    assert [(trade.buyer, trade.price) for trade in trades] == [("u3", 3.0), ("u2", 2.5)]


def test_gandiva_fair_lie_changes_the_second_price():
    lie = ((1, 2.8), *A[1:])
    fair = solve("gandiva_fair", lie)
    assert share(fair) == near((1, 0.3333333333333333 - 1 / 9 - 1 / 8.7), (0, 1 / 3 + 1 / 8.7), (0, 4 / 9))
    assert efficiency(solve("gandiva_fair", lie))[1:] == pytest.approx([1.3448276, 16 / 9])
    true = normalise(instance(A))
    assert true_efficiency(fair, instance(A).tenants[0], true.reference) == pytest.approx(1.2145594)
    assert [trade.price for trade in trades_of(fair.speedups)[1]] == pytest.approx([3.0, 2.9])


def test_gavel_with_a_limit_of_one_gpu_gives_the_papers_shares():
    fair = solve("gavel_capped", A)
    assert share(fair) == near((10 / 11, 1 / 11), (1 / 11, 5 / 11), (0, 5 / 11))
    assert efficiency(fair) == pytest.approx([12 / 11, 16 / 11, 20 / 11])  # the paper: 1.44, 1.8
    # The paper claims the reverse: 4.33 < 4.35.
    assert fair.total == pytest.approx(48 / 11)
    assert fair.total > solve("gandiva_fair", A).total


def test_gavel_without_a_limit():
    fair = solve("gavel", A)
    assert share(fair) == near((1, 5 / 98), (0, 24 / 49), (0, 45 / 98))
    assert fair.efficiency["u1"] == pytest.approx(54 / 49)


def test_gavel_gives_a_liar_more():
    fair = solve("gavel_capped", ((1, 2.5), *A[1:]))
    assert share(fair)[:1] == near((127 / 149, 22 / 149))


def test_a_trade_after_gavel_leaves_the_second_tenant_half_a_fast_gpu():
    # u1 buys u2's 1/11 of the slow GPU for 1/22 of its fast one; the paper misprints 0.0495 for a half.
    (slow_1, fast_1), (slow_2, fast_2), _ = share(solve("gavel_capped", A))
    assert (slow_1 + slow_2, fast_1 - slow_2 / 2) == pytest.approx((1, 1 / 22))
    assert fast_2 + slow_2 / 2 == pytest.approx(1 / 2)


def test_pure_efficiency_serves_the_fastest():
    fair = solve("pure_efficiency", A)
    assert fair.total == pytest.approx(5.0)
    assert fair.share["u3"] == pytest.approx((0, 1))


def test_incentive_only_totals():
    assert solve("incentive_only", A).total == pytest.approx(41 / 9)
    assert solve("incentive_only", B).total == pytest.approx(5.25)


def test_baselines_leave_the_third_tenant_envious():
    third = 2
    traded = solve("gandiva_fair", A)
    assert traded.efficiency["u3"] + envy_matrix(traded)[third, 1] == pytest.approx(28 / 15)
    assert largest_envy(traded)["u3"].of == "u2"
    capped = solve("gavel_capped", A)
    assert capped.efficiency["u3"] + envy_matrix(capped)[third, 1] == pytest.approx(21 / 11)


# ---- cooperative -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        (A, ((1, 0), (0, 0.5), (0, 0.5))),
        (B, ((1, 0.25), (0, 0.75))),
        (((1, 4), (1, 5)), ((1, 0.375), (0, 0.625))),
        (((1, 2), (1, 4)), ((1, 0.25), (0, 0.75))),
        (((1, 3), (1, 4)), ((1, 1 / 3), (0, 2 / 3))),
        (C, ((1, 0, 2 / 3), (0, 1, 1 / 3))),
    ],
)
def test_cooperative_shares(rows, expected):
    assert share(solve("cooperative", rows)) == near(*expected)


@pytest.mark.parametrize(("rows", "total"), [(A, 4.5), (B, 5.25), (C, 22 / 3), (D, 61 / 6)])
def test_cooperative_totals(rows, total):
    assert solve("cooperative", rows).total == pytest.approx(total)


def test_cooperative_lie_pays_and_costs_the_others():
    assert gain("cooperative", B, "u1", (1, 4)) == pytest.approx(0.25)
    lied = solve("cooperative", ((1, 4), (1, 5)))
    true_total = 1.75 + lied.efficiency["u2"]
    assert true_total == pytest.approx(4.875)
    assert 1 - true_total / 5.25 == pytest.approx(1 / 14)  # the paper: 8 %


def test_cooperative_second_tenant_values_the_fast_type_at_its_own_speedup():
    # The paper misprints a coefficient of 4 in the row on sharing incentive of u2 in B.
    fair = solve("cooperative", B)
    assert np_dot(fair.speedups.matrix[1], (0.5, 0.5)) == pytest.approx(3.0)


def np_dot(one, other):
    return float(sum(a * b for a, b in zip(one, other, strict=True)))


def test_cooperative_is_pareto_efficient_among_envy_free_shares_only():
    assert pareto_gap(solve("cooperative", D), HighsModel) == pytest.approx(1 / 12, abs=1e-6)


def with_gaps(fair):
    """Tenants with types that are not neighbours."""
    held = {tenant: [place for place, gpus in enumerate(gpus) if gpus > 0] for tenant, gpus in fair.share.items()}
    return [tenant for tenant, places in held.items() if places and places[-1] - places[0] >= len(places)]


@pytest.mark.parametrize("seed", range(40))
def test_noncooperative_gives_neighbouring_types_if_every_ratio_has_the_same_order_without_ties(seed):
    rng = Random(seed)
    tenants, types = rng.randint(2, 5), rng.randint(3, 4)
    ratios = [sorted(rng.uniform(1.0, 2.5) for _ in range(tenants)) for _ in range(types - 1)]
    rows = [tuple(accumulate((1.0, *row), mul)) for row in zip(*ratios, strict=True)]
    assert with_gaps(solve("noncooperative", rows, [rng.randint(1, 4) for _ in range(types)])) == []


@pytest.mark.parametrize(
    ("rule", "rows", "capacity", "tenant"),
    [
        ("noncooperative", C, (1, 1, 1), "u1"),
        # In order of every ratio, but tied: other optimal shares have no gap.
        ("noncooperative", ((1, 1.3, 1.4), (1, 1.3, 1.4)), (1, 1, 1), "u1"),
        # In order of every ratio without ties.
        ("cooperative", ((1, 1.01, 1.03), (1, 1.8, 2.6), (1, 1.82, 3.6), (1, 2.25, 4.5)), (4, 2, 3), "u3"),
    ],
)
def test_a_tenant_gets_types_that_are_not_neighbours(rule, rows, capacity, tenant):
    assert with_gaps(solve(rule, rows, capacity)) == [tenant]


def test_two_models_on_two_gpus_lose_a_tenth_under_max_min():
    rows = ((1, 1.39), (1, 2.15))
    plain, best = solve("max_min", rows), solve("cooperative", rows)
    assert plain.total / best.total - 1 == pytest.approx(-0.090, abs=5e-4)
    assert best.efficiency["u2"] / plain.efficiency["u2"] == pytest.approx(1.174, abs=5e-3)


# ---- non-cooperative -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rows", "weights", "expected", "common"),
    [
        (A, None, ((1, 5 / 26), (0, 6 / 13), (0, 9 / 26)), 18 / 13),
        (B, None, ((1, 4 / 7), (0, 3 / 7)), 15 / 7),
        (B, (1, 2), ((1, 1 / 3), (0, 2 / 3)), 5 / 3),
        (C, None, ((1, 0, 6 / 7), (0, 1, 1 / 7)), 25 / 7),
    ],
)
def test_noncooperative_shares(rows, weights, expected, common):
    fair = solve("noncooperative", rows, weights=weights)
    assert share(fair) == near(*expected)
    assert fair.efficiency["u1"] == pytest.approx(common)


def test_a_tenant_with_two_job_types_gets_two_virtual_tenants():
    types = {"a": (1, 2), "b": (1, 3)}
    other = virtual_tenants("u2", 1.0, {"c": (1, 5)})
    tenants = (*virtual_tenants("u1", 1.0, types), *other)
    fair = rule_named("noncooperative", HighsModel)(
        normalise(Instance(types=("slow", "fast"), capacity=(1, 1), tenants=tenants))
    )
    assert fair.share["u1/a"] == pytest.approx((1, 4 / 37))
    assert fair.share["u1/b"] == pytest.approx((0, 15 / 37))
    assert fair.share["u2/c"] == pytest.approx((0, 18 / 37))
    assert fair.efficiency["u2/c"] == pytest.approx(90 / 37)


@pytest.mark.parametrize(
    ("liar", "claim", "true"), [("u1", 3, 2.0), ("u1", 1.5, 29 / 13), ("u2", 6, 1.875), ("u2", 4, 2.5)]
)
def test_noncooperative_rewards_only_understated_claims(liar, claim, true):
    assert 15 / 7 + gain("noncooperative", B, liar, (1, claim)) == pytest.approx(true)


def test_a_tenant_with_two_job_types_may_gain_by_inflating_one():
    def total(first):
        types = {"a": first, "b": (1, 6)}
        other = virtual_tenants("u2", 1.0, {"c": (1, 5.5)})
        tenants = (*virtual_tenants("u1", 1.0, types), *other)
        fair = rule_named("noncooperative", HighsModel)(
            normalise(Instance(types=("slow", "fast"), capacity=(1, 3), tenants=tenants))
        )
        return sum(fair.share["u1/a"]) + np_dot((1, 6), fair.share["u1/b"])

    assert total((1, 1)) == pytest.approx(5.228, abs=5e-4)
    assert total((1, 3)) == pytest.approx(5.813, abs=5e-4)


# ---- one more device -------------------------------------------------------------------------------------------------


def worth(name, rows, gpu_type, capacity=None):
    rule, case = rule_named(name, HighsModel), instance(rows, capacity)
    return one_more(case, rule, rule(normalise(case)), gpu_type)


def test_one_more_device_is_worth_the_programmes_gain():
    assert worth("noncooperative", B, "g2") == pytest.approx({"u1": 10 / 7, "u2": 10 / 7})
    assert solve("noncooperative", B).prices == pytest.approx((5 / 7, 10 / 7))


def test_cooperative_worths_of_one_more_device_add_up_to_its_price():
    assert worth("cooperative", B, "g2") == pytest.approx({"u1": 1.0, "u2": 2.5})
    assert solve("cooperative", B).prices == pytest.approx((1.75, 3.5))


def test_first_device_of_a_type_is_worth_what_a_solve_with_it_gains():
    assert worth("cooperative", B, "g2", capacity=(1, 0)) == pytest.approx({"u1": 1.0, "u2": 3.25})


@pytest.mark.parametrize(
    ("name", "u1", "u2"), [("max_min", 1.0, 2.5), ("incentive_only", 1.0, 2.5), ("gavel", 140 / 141, 355 / 141)]
)
def test_rule_without_prices_is_computed_again_with_one_more_device(name, u1, u2):
    # What Gavel and the sharing incentive promise grows with the capacity, so their duals tell half of it.
    assert solve(name, B).prices is None and solve(name, B).marginal == {}
    assert worth(name, B, "g2") == pytest.approx({"u1": u1, "u2": u2})
