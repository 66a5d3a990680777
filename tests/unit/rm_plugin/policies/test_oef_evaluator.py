"""The fair share evaluator when the solver fails, and the audit's answers on what a tenant may ask."""

import numpy as np
import pytest
from oef_cases import A, B, instance

from rm_plugin.policies.oef.audit import envy_matrix, largest_envy, pareto_gap, sharing_incentive
from rm_plugin.policies.oef.evaluator import Mode, evaluate, rule_of
from rm_plugin.policies.oef.fair_share import ShareStatus
from rm_plugin.policies.oef.registry import RULES, rule_named
from rm_plugin.policies.oef.speedup import Instance, virtual_tenants
from rm_plugin.solvers.highs_linear import HighsModel
from rm_plugin.solvers.linear import LinearStatus, Optimum
from themis.errors import UnknownNameError


class FailingModel:
    def __init__(self, costs):
        pass

    def add_constraints(self, rows):
        pass

    def maximise(self):
        return Optimum(status=LinearStatus.FAILED, values=np.zeros(0), duals=np.zeros(0), objective=np.nan)


@pytest.mark.parametrize("rule", [rule for rule in RULES if rule not in ("max_min", "gandiva_fair")])
def test_a_failure_means_the_equal_split(rule):
    fair = evaluate(instance(B), rule_named(rule, FailingModel))
    assert fair.status is ShareStatus.EQUAL_SPLIT
    assert fair.share == {"u1": (0.5, 0.5), "u2": (0.5, 0.5)}


@pytest.mark.parametrize("mode", Mode)
def test_a_failure_continues_the_last_shares_within_the_present_capacity(mode):
    previous = {"u1": (2.0, 1.0), "u2": (0.0, 3.0)}
    fair = evaluate(instance(B, capacity=(1, 2)), rule_of(mode, FailingModel), previous)
    assert fair.status is ShareStatus.PREVIOUS
    assert fair.share == {"u1": pytest.approx((1.0, 0.5)), "u2": pytest.approx((0.0, 1.5))}


def test_a_failure_after_tenants_changed_means_the_equal_split():
    fair = evaluate(instance(B), rule_of(Mode.COOPERATIVE, FailingModel), {"u1": (1.0, 1.0)})
    assert fair.status is ShareStatus.EQUAL_SPLIT


def test_a_pareto_gap_that_cannot_be_computed_is_not_a_number():
    fair = evaluate(instance(B), rule_of(Mode.COOPERATIVE, HighsModel))
    assert np.isnan(pareto_gap(fair, FailingModel))


def test_envy_is_scaled_to_the_tenants_weight():
    fair = evaluate(instance(B, weights=(1, 2)), rule_named("max_min", HighsModel))
    assert envy_matrix(fair) == pytest.approx(np.zeros((2, 2)))
    assert largest_envy(fair) == {}
    assert sharing_incentive(fair) == pytest.approx({"u1": 1.0, "u2": 1.0})


def test_an_unknown_rule_names_the_nearest():
    with pytest.raises(UnknownNameError, match="did you mean 'gavel'"):
        rule_named("gavle", HighsModel)


def test_a_split_into_equal_job_types_gains_nothing():
    whole = instance(A)
    parts = virtual_tenants("u1", 1.0, dict.fromkeys("ab", whole.tenants[0].speedup))
    split = Instance(types=whole.types, capacity=whole.capacity, tenants=(*parts, *whole.tenants[1:]))
    for mode in Mode:
        one, other = (evaluate(each, rule_of(mode, HighsModel)).efficiency for each in (whole, split))
        assert other["u1/a"] + other["u1/b"] == pytest.approx(one["u1"])
