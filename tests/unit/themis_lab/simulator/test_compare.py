"""Policies ranked by their max rho over that of the best other policy."""

from themis_lab.simulator.compare import fairness_ratios


def ranked(policy, seed, themis_fluid, isolated_fluid):
    return {
        "policy": policy,
        "seed": seed,
        "max_rho": {"themis_fluid": themis_fluid, "isolated_fluid": isolated_fluid, "themis": 1.0},
    }


def test_ratio_is_the_worse_of_two_to_the_best_other_policy_and_below_one_counts_as_one():
    runs = [
        *(ranked("a", 1, 2.0, 0.5), ranked("b", 1, 1.0, 1.5), ranked("c", 1, 0.2, 3.0)),
        *(ranked("a", 2, 0.5, 0.5), ranked("b", 2, 4.0, 0.5), ranked("c", 2, 2.0, 0.5)),
    ]
    # Seed 1: a 2/1 and 1/1.5; b 1/1 and 1.5/1; c 1/1 and 3/1. Seed 2: a 1/2 and 1; b 4/1 and 1; c 2/1 and 1.
    assert fairness_ratios(runs) == [
        {"policy": "a", "median": 1.5, "worst": 2.0},
        {"policy": "c", "median": 2.5, "worst": 3.0},
        {"policy": "b", "median": 2.75, "worst": 4.0},
    ]


def test_policies_of_equal_median_come_by_their_worst_seed_and_then_by_name():
    runs = [
        *(ranked("slaq", 1, 3.0, 1.0), ranked("srsf", 1, 1.0, 1.0), ranked("drf", 1, 3.0, 1.0)),
        *(ranked("slaq", 2, 1.0, 1.0), ranked("srsf", 2, 2.0, 1.0), ranked("drf", 2, 1.0, 1.0)),
        *(ranked("slaq", 3, 1.0, 1.0), ranked("srsf", 3, 1.0, 1.0), ranked("drf", 3, 1.0, 1.0)),
    ]
    # Each is the best but for one seed. `srsf` is worst at seed 2: 2/1. The others are at seed 1: 3/1.
    assert [(each["policy"], each["median"], each["worst"]) for each in fairness_ratios(runs)] == [
        *(("srsf", 1.0, 2.0), ("drf", 1.0, 3.0), ("slaq", 1.0, 3.0)),
    ]


def test_policies_without_a_rival_or_without_the_definitions_have_no_ratio():
    assert fairness_ratios([ranked("a", 1, 2.0, 2.0), ranked("b", 2, 2.0, 2.0)]) == []
    old = {"policy": "c", "seed": 1, "max_rho": {"themis": 1.0}}
    assert fairness_ratios([ranked("a", 1, 2.0, 2.0), old]) == []
