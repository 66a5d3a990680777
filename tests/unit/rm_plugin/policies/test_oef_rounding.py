"""Rounding of shares over rounds: nothing is lost, no tenant starves, no gang gets less than it needs."""

import random

import pytest

from rm_plugin.policies.oef.rounding import GangLimits, round_shares

ANY = GangLimits(smallest=1, most=1000)


def rounds(count, capacity, ideal, limits):
    deviation = {}
    for _ in range(count):
        rounded = round_shares(capacity, ideal, deviation, limits)
        deviation = rounded.deviation
        yield rounded


def test_thirds_of_a_gpu_are_served_in_turn():
    ideal = dict.fromkeys("abc", (1 / 3,))
    served = [
        next(name for name, gpus in rounded.granted.items() if gpus == (1,))
        for rounded in rounds(9, (1,), ideal, dict.fromkeys("abc", ANY))
    ]
    assert served == list("abcabcabc")


def test_deviations_continue_from_the_state():
    ideal, limits = {"a": (0.4,), "b": (0.6,)}, {"a": ANY, "b": ANY}
    first = round_shares((1,), ideal, {}, limits)
    assert first.granted == {"a": (0,), "b": (1,)}
    assert first.deviation == {"a": (pytest.approx(0.4),), "b": (pytest.approx(-0.4),)}
    assert round_shares((1,), ideal, first.deviation, limits).granted == {"a": (1,), "b": (0,)}


def test_leavers_are_dropped_and_joiners_begin_at_0():
    rounded = round_shares((1,), {"b": (1.0,)}, {"a": (5.0,)}, {"b": ANY})
    assert rounded.granted == {"b": (1,)}
    assert rounded.deviation == {"b": (0.0,)}


def test_a_tenant_below_its_smallest_gang_gives_its_gpus_to_others():
    ideal = {"small": (2.0,), "large": (2.0,)}
    limits = {"small": ANY, "large": GangLimits(smallest=4, most=4)}
    granted = [rounded.granted for rounded in rounds(2, (4,), ideal, limits)]
    assert granted[0] == {"small": (4,), "large": (0,)}
    assert granted[1] == {"small": (0,), "large": (4,)}


def test_a_gang_may_span_types():
    ideal, limits = {"a": (2.0, 2.0)}, {"a": GangLimits(smallest=4, most=4)}
    assert round_shares((2, 2), ideal, {}, limits).granted == {"a": (2, 2)}


def test_unusable_gpus_go_to_others_without_credit():
    ideal = {"done": (3.0,), "busy": (1.0,)}
    limits = {"done": GangLimits(smallest=1, most=1), "busy": ANY}
    rounded = round_shares((4,), ideal, {}, limits)
    assert rounded.granted == {"done": (1,), "busy": (3,)}
    assert rounded.deviation["done"] == (0.0,)


@pytest.mark.parametrize(("speedup", "kept"), [((1.0, 3.0), (0, 2)), ((1.0, 0.5), (2, 0))])
def test_gpus_beyond_the_demand_are_released_from_the_tenants_slowest_type(speedup, kept):
    # It claims both types equally. The second is the faster one as declared.
    limits = {"a": GangLimits(smallest=1, most=2, speedup=speedup)}
    assert round_shares((2, 2), {"a": (2.0, 2.0)}, {}, limits).granted == {"a": kept}


def test_the_least_claimed_type_is_released_before_a_slower_one():
    limits = {"a": GangLimits(smallest=1, most=2, speedup=(1.0, 3.0))}
    assert round_shares((2, 1), {"a": (2.0, 1.0)}, {}, limits).granted == {"a": (2, 0)}


def test_no_tenant_means_no_grant():
    assert round_shares((4,), {}, {}, {}).granted == {}


def shares_of(rng, tenants, capacity):
    """Shares that use the whole capacity."""
    cuts = [[rng.random() for _ in range(tenants)] for _ in capacity]
    return {
        f"u{row}": tuple(have * cut[row] / sum(cut) for have, cut in zip(capacity, cuts, strict=True))
        for row in range(tenants)
    }


@pytest.mark.parametrize("seed", range(20))
def test_single_gpus_deviate_by_less_than_one_gpu(seed):
    rng = random.Random(seed)
    capacity = (8, 8, 8)
    ideal = shares_of(rng, rng.randint(3, 12), capacity)
    got = {name: [0.0, 0.0, 0.0] for name in ideal}
    for rounded in rounds(300, capacity, ideal, dict.fromkeys(ideal, ANY)):
        assert [sum(column) for column in zip(*rounded.granted.values(), strict=True)] == list(capacity)
        assert all(abs(value) < 1 for row in rounded.deviation.values() for value in row)
        for name, gpus in rounded.granted.items():
            got[name] = [total + part for total, part in zip(got[name], gpus, strict=True)]
    for name, share in ideal.items():
        assert [total / 300 for total in got[name]] == pytest.approx(share, abs=0.01)


@pytest.mark.parametrize("seed", range(20))
def test_gangs_are_served_whole_and_in_time(seed):
    rng = random.Random(seed)
    capacity = (8, 8, 8)
    ideal = shares_of(rng, rng.randint(3, 12), capacity)
    limits = {
        name: GangLimits(smallest=rng.randint(1, 8), most=1000, speedup=tuple(rng.uniform(0.5, 4.0) for _ in capacity))
        for name in ideal
    }
    largest = max(limit.smallest / sum(ideal[name]) for name, limit in limits.items())
    idle = dict.fromkeys(ideal, 0)
    for rounded in rounds(500, capacity, ideal, limits):
        assert all(
            0 <= sum(column) <= have
            for column, have in zip(zip(*rounded.granted.values(), strict=True), capacity, strict=True)
        )
        for name, gpus in rounded.granted.items():
            assert sum(gpus) == 0 or sum(gpus) >= limits[name].smallest
            idle[name] = 0 if sum(gpus) else idle[name] + 1
            assert idle[name] <= 5 * max(1, largest)
        assert all(abs(value) <= 20 for row in rounded.deviation.values() for value in row)


def test_gpus_that_no_other_tenant_wanted_are_no_debt():
    ideal = {"done": (3.0,), "busy": (1.0,)}
    limits = {"done": GangLimits(smallest=1, most=1), "busy": ANY}
    assert [rounded.deviation["busy"] for rounded in rounds(5, (4,), ideal, limits)] == [(0.0,)] * 5


@pytest.mark.parametrize("most", [2, 1000])
def test_a_gang_over_types_is_served_although_each_type_is_claimed_in_full(most):
    # Found by `themis audit`: the first tenant has no claim to the other's GPU, and cannot start with its own alone.
    ideal = {"pair": (0.0, 1.0), "single": (1.0, 0.0)}
    limits = {"pair": GangLimits(smallest=2, most=most), "single": ANY}
    decided = list(rounds(100, (1, 1), ideal, limits))
    served = [rounded.granted["pair"] == (1, 1) for rounded in decided]
    assert sum(served) == pytest.approx(50, abs=3)
    assert all(abs(value) <= 6 for rounded in decided for row in rounded.deviation.values() for value in row)


@pytest.mark.parametrize("seed", range(20))
def test_types_on_which_a_tenant_cannot_run_go_to_others(seed):
    rng = random.Random(seed)
    ideal = {"half": (0.0, 4.0), "other": (4.0, 0.0)}
    limits = {
        "half": GangLimits(smallest=rng.randint(1, 4), most=1000, speedup=(0.0, 1.0)),
        "other": GangLimits(smallest=rng.randint(1, 8), most=rng.choice((8, 1000))),
    }
    idle = dict.fromkeys(ideal, 0)
    for rounded in rounds(60, (4, 4), ideal, limits):
        assert rounded.granted["half"][0] == 0
        for name, gpus in rounded.granted.items():
            idle[name] = 0 if any(gpus) else idle[name] + 1
            assert idle[name] <= 15


def test_devices_that_no_tenant_can_use_stay_free():
    limits = {"a": GangLimits(smallest=1, most=10, speedup=(0.0, 1.0))}
    assert round_shares((2, 3), {"a": (0.0, 3.0)}, {}, limits).granted == {"a": (0, 3)}
