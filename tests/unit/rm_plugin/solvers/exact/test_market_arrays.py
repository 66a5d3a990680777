"""A market in arrays: which rows may win, what they gain, and that the order of the input does not matter."""

import math
import random

import numpy as np
import pytest
from small_markets import bid, gang, machine, market, row

from rm_plugin.solvers.exact.knapsack import most_pinned, pinned_together
from rm_plugin.solvers.exact.market_arrays import read_market
from rm_plugin.solvers.kinds import Kind
from themis.bids import Bid, Market
from themis.choices import EmptyBundle
from themis.cluster import Level
from themis_lab.audit.recipes import Recipe, random_market

CLUSTER, MACHINE = Level.CLUSTER, Level.MACHINE
RECIPES = (Recipe(), Recipe(pinned_gangs=True, units=False), Recipe(empty_bundle=EmptyBundle.LEXICOGRAPHIC))


def content(arrays):
    """What the rows say, without the index in the bid."""
    rows = arrays.rows
    return [
        each.tolist()
        for each in (
            *(rows.row_start, rows.gain, rows.gpus, rows.tie, rows.counts),
            *(rows.pin_start, rows.pin_machine, rows.pin_gpus),
        )
    ] + [arrays.kinds, arrays.unit, tuple(each.app_id for each in arrays.bids)]


@pytest.mark.parametrize("recipe", RECIPES, ids=["gangs", "pinned", "lexicographic"])
def test_the_order_of_bidders_rows_and_machines_does_not_matter(recipe):
    for seed in range(40):
        given, rng = random_market(seed, recipe), random.Random(seed)
        bids = [
            Bid(
                app_id=each.app_id,
                round_id=0,
                empty_value=each.empty_value,
                rows=tuple(rng.sample(each.rows, len(each.rows))),
            )
            for each in rng.sample(given.bids, len(given.bids))
        ]
        machines = tuple(rng.sample(given.machines, len(given.machines)))
        shuffled = Market(machines=machines, bids=tuple(bids), empty_bundle=given.empty_bundle)
        assert content(read_market(shuffled)) == content(read_market(given))


def test_rows_that_cannot_win_are_left_out_and_the_others_keep_their_index():
    machines = [machine("m0", 2), machine("m1", 3), machine("m2", 0)]
    one = gang(1, CLUSTER)
    rows = (
        row(0.5, one), row(0.4, one), row(0.9, gang(6, CLUSTER)), row(0.8, m0=3), row(0.7, m2=1), row(0.6, m9=1),
        row(0.9, one, one, m1=3),
    )  # fmt: skip
    arrays = read_market(market(machines, bid("a", 0.45, *rows)))
    assert arrays.rows.index.tolist() == [6, 0]
    assert arrays.rows.gpus.tolist() == [5, 1]
    assert arrays.rows.counts.tolist() == [[2], [1]]
    assert arrays.kinds == (Kind(CLUSTER, 1, 1),)
    assert [each.machine_id for each in arrays.machines] == ["m0", "m1"]
    assert (arrays.rows.pin_machine.tolist(), arrays.rows.pin_gpus.tolist()) == ([1], [3])


def test_gains_are_logs_over_the_empty_bundle_in_whole_units():
    arrays = read_market(market([machine("m0", 4)], bid("a", 0.2, row(0.9, gang(1, CLUSTER)), row(0.3, m0=1))))
    assert arrays.unit == 2.0**40
    assert arrays.rows.gain.tolist() == [round(math.log(value / 0.2) * 2**40) for value in (0.9, 0.3)]


def test_rows_of_a_bidder_are_sorted_best_first():
    for seed in range(20):
        rows = read_market(random_market(seed, Recipe(rows=9, value=lambda rng: rng.choice((0.6, 0.7))))).rows
        for first, end in zip(rows.row_start[:-1], rows.row_start[1:], strict=True):
            keys = list(zip(-rows.gain[first:end], rows.gpus[first:end], rows.tie[first:end], strict=True))
            assert keys == sorted(keys)


def test_rescuing_one_more_bidder_gains_more_than_all_else_together():
    """Values from 1e-9 to 1e9: bidders that start at 0 count before any product."""
    rng = random.Random(0)
    for _ in range(100):
        bids = [
            bid(
                f"a{n}",
                rng.choice((0.0, 0.0, 1e-9)),
                *(row(10.0 ** rng.uniform(-8.9, 9), gang(1, CLUSTER)) for _ in range(3)),
            )
            for n in range(6)
        ]
        arrays = read_market(market([machine("m0", 9)], *bids, lexicographic=True))
        rows, best, least_rescue = arrays.rows, 0, []
        spread = 0
        for n, each in enumerate(arrays.bids):
            gains = rows.gain[rows.row_start[n] : rows.row_start[n + 1]].tolist()
            if each.empty_value == 0.0:
                least_rescue.append(min(gains))
                spread += max(gains) - min(gains)
            else:
                best += max(gains)
        assert not least_rescue or min(least_rescue) > best + spread


@pytest.mark.parametrize("lexicographic", [False, True])
def test_a_thousand_bidders_of_extreme_values_keep_within_the_bits(lexicographic):
    empty = 0.0 if lexicographic else 1e-9
    bids = [bid(f"a{n:04}", empty, row(1e9, gang(1, CLUSTER)), row(1e-8, m0=1)) for n in range(1_000)]
    arrays = read_market(market([machine("m0", 9)], *bids, lexicographic=lexicographic))
    gain = [int(value) for value in arrays.rows.gain[arrays.rows.row_start[:-1]]]
    assert len(gain) == 1_000
    assert 0 < sum(gain) < 2**61
    bonus = 1.0 + 2.0 * 1_000 * math.log(1e9) if lexicographic else 0.0
    assert gain[0] / arrays.unit == pytest.approx(math.log(1e9) - (0 if lexicographic else math.log(1e-9)) + bonus)
    assert arrays.unit >= 2.0**33


def test_digests_distinguish_apps_gangs_and_pins():
    machines = [machine("m0", 4), machine("m1", 4)]
    asked = [
        row(0.5, gang(1, CLUSTER)), row(0.5, gang(2, MACHINE)), row(0.5, gang(1, CLUSTER, 2)), row(0.5, m0=1),
        row(0.5, m0=2), row(0.5, m1=1), row(0.5, m0=1, m1=1), row(0.5, gang(1, CLUSTER), m0=1),
    ]  # fmt: skip
    rows = read_market(market(machines, bid("a", 0.1, *asked), bid("b", 0.1, *asked))).rows
    assert len(set(rows.tie.tolist())) == 2 * len(asked)
    assert 0 <= rows.tie.min() <= rows.tie.max() < 2**36


def test_pinned_totals_are_those_of_one_bidder_or_sums_of_several():
    machines = [machine("m0", 6), machine("m1", 5)]
    one = bid("a", 0.1, row(0.5, m0=2), row(0.6, m0=4, m1=3))
    other = bid("b", 0.1, row(0.5, m0=2))
    rows = read_market(market(machines, one, other)).rows
    assert pinned_together(rows, np.array([6, 5])) == {(0, 2), (0, 4), (0, 6), (1, 3)}
    assert most_pinned(rows, 2).tolist() == [6, 3]


def test_only_keeps_the_pins_of_the_rows_that_stay():
    rows = read_market(random_market(3, Recipe(pinned_gangs=True, units=False, rows=8))).rows
    keep = np.arange(rows.rows) % 2 == 0
    some = rows.only(keep)
    for place, row_ in enumerate(np.flatnonzero(keep).tolist()):
        mine, its = (slice(r.pin_start[n], r.pin_start[n + 1]) for r, n in ((some, place), (rows, row_)))
        assert some.pin_machine[mine].tolist() == rows.pin_machine[its].tolist()
        assert some.gain[place] == rows.gain[row_]
    assert len(rows.pin_gpus) > len(some.pin_gpus) > 0
