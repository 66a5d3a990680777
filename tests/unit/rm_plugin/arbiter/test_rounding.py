"""Rounding keeps c * k gangs in expectation, the best first, and draws by app."""

import random
import statistics

import pytest

from rm_plugin.arbiter.rounding import keep_share, keep_shares
from themis.apps import CRUDE_SLOWDOWN, Slowdown
from themis.bids import GangDemand, PlacedGang
from themis.choices import Rounding
from themis.cluster import Allocation, Level
from themis.errors import InputError


def gang(level, pinned=False, **gpus):
    return PlacedGang(gpus=Allocation.of(gpus), level=level, pinned=pinned)


def in_slot(slot, **gpus):
    return PlacedGang(gpus=Allocation.of(gpus), level=Level.SLOT, slot=slot)


FIVE = [gang(Level.MACHINE, **{f"m{index}": 2}) for index in range(5)]


@pytest.mark.parametrize("share", [0.0, 0.13, 0.5, 2 / 3, 0.97, 1.0])
@pytest.mark.parametrize("gangs", [1, 3, 5])
def test_probabilistic_rounding_keeps_the_share_in_expectation(share, gangs):
    draws = 4000
    kept = [
        len(keep_shares({"a": FIVE[:gangs]}, {"a": share}, {}, seed, Rounding.PROBABILISTIC)["a"])
        for seed in range(draws)
    ]
    assert statistics.fmean(kept) == pytest.approx(share * gangs, abs=4 * 0.5 / draws**0.5 + 1e-9)
    assert {int(share * gangs), -int(-share * gangs // 1)} >= set(kept)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (gang(Level.MACHINE, m0=2), gang(Level.MACHINE, m1=2)),
        (in_slot(0, m0=2), in_slot(1, m0=2)),
    ],
    ids=["machine ids", "slots of a machine"],
)
def test_of_gangs_that_are_alike_the_one_in_the_first_place_is_kept(first, second):
    for gangs in ([first, second], [second, first]):
        assert keep_shares({"a": gangs}, {"a": 0.5}, {}, 0, Rounding.NEAREST)["a"] == (first,)


def test_of_gangs_at_one_level_the_larger_is_kept():
    small, large = gang(Level.MACHINE, m0=2), gang(Level.MACHINE, m1=4)
    for gangs in ([small, large], [large, small]):
        assert keep_shares({"a": gangs}, {"a": 0.5}, {}, 0, Rounding.NEAREST)["a"] == (large,)


def of_size(least, most, unit=1):
    return (GangDemand(job_id="j", min_gpus=least, max_gpus=most, unit_gpus=unit),)


def by_gpu(gangs, share, seed, demands):
    return keep_share(gangs, share, CRUDE_SLOWDOWN, random.Random(seed), Rounding.BY_GPU, demands)


def test_by_gpu_keeps_the_share_of_gpus_in_expectation_and_may_cut_a_gang():
    kept = [by_gpu(FIVE, 0.45, seed, of_size(1, 2)) for seed in range(4000)]
    gpus = [sum(each.gpus.gpus for each in gangs) for gangs in kept]
    assert set(gpus) == {4, 5}
    assert statistics.fmean(gpus) == pytest.approx(4.5, abs=0.04)
    assert {each.gpus.gpus for gangs in kept for each in gangs} == {1, 2}


@pytest.mark.parametrize("demands", [of_size(2, 2), ()], ids=["too small to run on", "unknown"])
def test_by_gpu_keeps_a_gang_whole_where_a_part_of_it_would_be_useless(demands):
    kept = [by_gpu(FIVE, 0.45, seed, demands) for seed in range(4000)]
    assert {each.gpus.gpus for gangs in kept for each in gangs} == {2}
    gpus = [sum(each.gpus.gpus for each in gangs) for gangs in kept]
    assert set(gpus) == {4, 6}
    assert statistics.fmean(gpus) == pytest.approx(4.5, abs=0.06)


def test_by_gpu_cuts_to_whole_tasks_on_each_machine():
    wide = [gang(Level.RACK, m0=4, m1=2)]
    (part,) = by_gpu(wide, 4 / 6, 0, of_size(2, 6, unit=2))
    assert part.gpus == Allocation.of({"m0": 4})


def test_by_gpu_cuts_from_the_first_machine_if_two_have_as_many():
    assert by_gpu([gang(Level.RACK, m0=3, m1=3)], 0.5, 0, of_size(2, 6, unit=3))[0].gpus == Allocation.of({"m0": 3})


@pytest.mark.parametrize(
    ("demands", "least"),
    [(of_size(1, 2), 2), (of_size(4, 8, unit=4), 4)],
    ids=["a small job", "large tasks"],
)
def test_rounding_by_gpu_keeps_the_share_even_if_a_gang_cannot_be_cut(demands, least):
    """0.9 of 8 GPUs: no job can run on 7 of them, so the whole gang stays, or now and then the largest useful part."""
    kept = [by_gpu([gang(Level.MACHINE, m0=8)], 0.9, seed, demands) for seed in range(4000)]
    gpus = [sum(each.gpus.gpus for each in gangs) for gangs in kept]
    assert set(gpus) == {least, 8}
    assert statistics.fmean(gpus) == pytest.approx(7.2, abs=0.2)


@pytest.mark.parametrize(
    ("demands", "least"),
    [(of_size(1, 4), 1), (of_size(4, 8, unit=4), 4), (of_size(3, 8, unit=2), 4), ((), 8)],
    ids=["elastic", "tasks", "part of a task", "unknown"],
)
def test_capped_payment_leaves_the_smallest_gang_that_a_job_can_use(demands, least):
    won = [gang(Level.MACHINE, m0=8)]
    kept = [keep_share(won, 0.01, CRUDE_SLOWDOWN, random.Random(seed), Rounding.CAPPED, demands) for seed in range(200)]
    gpus = [sum(each.gpus.gpus for each in gangs) for gangs in kept]
    assert min(gpus) == least
    assert any(not by_gpu(won, 0.01, seed, demands) for seed in range(200))


def test_capped_payment_is_that_by_gpu_if_something_is_left():
    for seed in range(200):
        capped = keep_share(FIVE, 0.45, CRUDE_SLOWDOWN, random.Random(seed), Rounding.CAPPED, of_size(1, 2))
        assert capped == by_gpu(FIVE, 0.45, seed, of_size(1, 2))
    assert keep_share([], 0.5, CRUDE_SLOWDOWN, random.Random(0), Rounding.CAPPED) == ()


@pytest.mark.parametrize("rounding", Rounding)
def test_a_pinned_gang_over_machines_is_kept_or_lost_as_one(rounding):
    gangs = [gang(Level.RACK, pinned=True, m0=1, m1=1), gang(Level.MACHINE, pinned=True, m0=2)]
    for seed in range(200):
        for kept in keep_share(gangs, 0.6, CRUDE_SLOWDOWN, random.Random(seed), rounding, of_size(2, 2)):
            assert kept in gangs


@pytest.mark.parametrize(("share", "kept"), [(0.09, 0), (0.1, 1), (0.29, 1), (0.3, 2), (1.0, 5)])
def test_nearest_rounds_half_up_without_chance(share, kept):
    assert len(keep_share(FIVE, share, CRUDE_SLOWDOWN, random.Random(0), Rounding.NEAREST)) == kept


def test_gangs_of_least_slowdown_are_kept_pinned_before_others():
    far = gang(Level.CLUSTER, m0=1, m9=3)
    near = gang(Level.MACHINE, m5=4)
    pinned = gang(Level.MACHINE, pinned=True, m7=1)
    kept = keep_share([far, near, pinned], 2 / 3, CRUDE_SLOWDOWN, random.Random(0))
    assert kept == (pinned, near)


def test_where_levels_cost_the_same_the_nearer_is_kept():
    flat = Slowdown(1.0, 1.0, 1.0, 1.0)
    near, far = gang(Level.MACHINE, m5=2), gang(Level.CLUSTER, m0=4, m1=4)
    assert keep_share([far, near], 0.5, flat, random.Random(0)) == (near,)


def test_other_apps_and_their_order_do_not_change_a_draw():
    names = [f"app-{index}" for index in range(12)]
    gangs, shares = dict.fromkeys(names, FIVE), dict.fromkeys(names, 0.5)
    all_kept = keep_shares(gangs, shares, {}, 7)
    for name in names:
        assert keep_shares({name: FIVE}, {name: 0.5}, {}, 7)[name] == all_kept[name]
    assert keep_shares(dict(reversed(gangs.items())), shares, {}, 7) == all_kept
    assert {len(kept) for kept in all_kept.values()} == {2, 3}


def test_a_share_beyond_1_is_refused():
    with pytest.raises(InputError, match="between 0 and 1"):
        keep_share(FIVE, 1.01, CRUDE_SLOWDOWN, random.Random(0))


def test_capped_payment_leaves_the_first_gang_if_no_job_can_use_a_part_of_it():
    near, far = gang(Level.MACHINE, m0=2), gang(Level.RACK, m1=1, m2=1)
    assert keep_share([far, near], 0.0, CRUDE_SLOWDOWN, random.Random(0), Rounding.CAPPED) == (near,)


def test_by_gpu_keeps_the_largest_part_that_any_job_can_use():
    demands = [GangDemand(job_id=f"j{most}", min_gpus=1, max_gpus=most, work_left_gpu_s=1.0) for most in (1, 3)]
    for seed in range(20):
        kept = keep_share(
            [gang(Level.MACHINE, m0=4)], 0.75, CRUDE_SLOWDOWN, random.Random(seed), Rounding.BY_GPU, demands
        )
        assert kept == (gang(Level.MACHINE, m0=3),)


def test_winner_that_pays_nothing_keeps_all_and_so_does_every_app_after_it():
    kept = keep_shares({"a": FIVE, "b": FIVE, "c": FIVE}, {"a": 1.0, "b": 0.4, "c": 1.0}, {}, 0, Rounding.NEAREST)
    assert {app_id: len(gangs) for app_id, gangs in kept.items()} == {"a": 5, "b": 2, "c": 5}


def test_whole_share_is_kept_exactly_even_if_the_draw_is_0():
    class Lowest(random.Random):
        def random(self):
            return 0.0

    for share, gangs in ((0.0, 0), (0.5, 2), (1.0, 4)):
        assert len(keep_share(FIVE[:4], share, CRUDE_SLOWDOWN, Lowest(), Rounding.PROBABILISTIC)) == gangs
