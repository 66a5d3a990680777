"""The compiled dynamic programme and the knapsack that it is given, against all choices of rows."""

import itertools
import random

import numpy as np
import pytest
from core_cases import best_first, bound_of, draw_knapsack, feasible_choices, pinned_by, rank
from msgspec.structs import replace

from rm_plugin.solvers.exact import _core
from rm_plugin.solvers.exact.knapsack import build_problem
from rm_plugin.solvers.exact.market_arrays import Rows
from rm_plugin.solvers.exact.resources import Resource

UNIT = 2.0**40
OPTIMAL, OUT_OF_TIME, TOO_WIDE = 0, 1, 2
SHAPES = {
    "pins that add up or not": {"machines": 2},
    "more machines": {"machines": 4, "kinds": 1},
    "no pins": {"machines": 1, "kinds": 3, "bidders": 4},
    "many ties": {"gains": 2, "bidders": 4},
    "one kind": {"kinds": 1, "machines": 3, "most_rows": 6},
    "machines shared one after the other": {"kinds": 1, "machines": 3, "bidders": 6, "most_rows": 1},
}


def search(problem, bidders, price, *, skip=-1, beam=0, seconds=60.0, most_states=0, first_gap=1e-4):
    choice = np.full(bidders, 77, dtype=np.int32)
    status, value, bound, states = _core.search(problem, skip, price, first_gap, beam, seconds, most_states, choice)
    return status, value, bound, states, tuple(choice.tolist())


def prices_of(problem, limits, rng, skip=-1):
    """Prices found, or drawn: any are valid."""
    price = np.zeros(len(limits))
    if rng.random() < 0.5:
        _core.prices(problem, skip, price, False)
    elif rng.random() < 0.7:
        price[:] = [rng.uniform(0, 0.3) for _ in limits]
    return price


def draws(name, number):
    rng = random.Random(name)
    for _ in range(number):
        rows, limits, free = draw_knapsack(rng, **SHAPES[name])
        problem = build_problem(rows, limits, free, UNIT)
        yield rng, rows, limits, free, problem, len(rows.row_start) - 1


@pytest.mark.parametrize("name", SHAPES)
def test_ties_at_the_optimum_prefer_fewest_gpus_then_smallest_digest(name):
    winners = 0
    for rng, rows, limits, free, problem, bidders in draws(name, 150):
        skip = rng.choice((-1, -1, *range(bidders)))
        best = min(feasible_choices(rows, limits, free, skip), key=lambda choice: rank(rows, choice))
        price = prices_of(problem, limits, rng, skip)
        if rng.random() < 0.5:
            _core.share(problem, rng.choice((-1, *range(bidders))), prices_of(problem, limits, rng))
        status, value, bound, _, choice = search(problem, bidders, price, skip=skip)
        assert (status, value, bound) == (OPTIMAL, -rank(rows, best)[0], -rank(rows, best)[0])
        assert rank(rows, choice) == rank(rows, best)
        winners += sum(row >= 0 for row in choice)
    assert winners > 100


@pytest.mark.parametrize("name", SHAPES)
def test_a_beam_finds_a_feasible_choice_and_claims_no_proof(name):
    worse = 0
    for rng, rows, limits, free, problem, bidders in draws(name, 80):
        price = prices_of(problem, limits, rng)
        status, value, bound, _, choice = search(problem, bidders, price, beam=rng.randint(1, 2))
        feasible = set(feasible_choices(rows, limits, free))
        best = max(-rank(rows, other)[0] for other in feasible)
        assert status == OUT_OF_TIME
        assert choice in feasible
        assert value == -rank(rows, choice)[0] <= best <= bound
        worse += value < best
    assert name == "no pins" or worse > 0


def wide():
    """A knapsack with many states: rows of all kinds for many bidders, hardly any limit at all."""
    rows, limits, free = draw_knapsack(random.Random(3), bidders=14, most_rows=6, machines=1, kinds=3, gains=1 << 20)
    limits = [
        limit.__class__(name=limit.name, capacity=9, by_kind=limit.by_kind, taken=limit.taken) for limit in limits
    ]
    return rows, limits, free, build_problem(rows, limits, free, UNIT)


@pytest.mark.parametrize(
    ("given", "expected"), [({"most_states": 3}, TOO_WIDE), ({"seconds": 0.0}, OUT_OF_TIME), ({"seconds": -1.0}, 1)]
)
def test_an_interrupted_search_returns_a_valid_bound(given, expected):
    rows, limits, _, problem = wide()
    bidders, price = len(rows.row_start) - 1, np.zeros(len(limits))
    optimum = search(problem, bidders, price)[1]
    status, _, bound, _, choice = search(problem, bidders, price, **given)
    assert status == expected
    assert bound >= optimum
    assert choice == (-1,) * bidders


def test_the_target_sinks_from_any_first_gap_to_the_same_answer():
    rows, limits, _, problem = wide()
    bidders = len(rows.row_start) - 1
    answers = {search(problem, bidders, np.zeros(len(limits)), first_gap=gap)[4] for gap in (0.0, 1e-9, 1e-3, 1e3)}
    assert len(answers) == 1


def many_alike(seed, bidders=20, each=6, kinds=3, scale=20):
    """Rows worth about what they ask for, each kind of gang with a limit of its own: a hundred thousand states.

    What may be left of a limit is too much to be counted exactly, unless the scale is 1.
    """
    draw, total = np.random.default_rng(seed), bidders * each
    counts = draw.integers(0, 1_000, (total, kinds)).astype(np.int32)
    rows = Rows(
        row_start=np.arange(bidders + 1, dtype=np.int32) * each,
        index=np.tile(np.arange(each, dtype=np.int32), bidders),
        gain=(counts.sum(axis=1) + draw.integers(0, 400, total)).astype(np.int64) << 28,
        gpus=counts.sum(axis=1, dtype=np.int32),
        tie=np.arange(total, dtype=np.int64),
        counts=counts,
        pin_start=np.zeros(total + 1, dtype=np.int32),
        pin_machine=np.zeros(0, dtype=np.int32),
        pin_gpus=np.zeros(0, dtype=np.int32),
    )
    nothing, each_kind = np.zeros((1, 2), np.int32), np.eye(kinds, dtype=np.int32)
    limits = [
        Resource(name=("kind", kind), capacity=300 * bidders * scale, by_kind=each_kind[kind] * scale, taken=nothing)
        for kind in range(kinds)
    ]
    return build_problem(best_first(rows), limits, np.ones(1, dtype=np.int32), UNIT)


@pytest.mark.parametrize("seed", [0, 2])
def test_the_steps_of_the_target_change_no_answer_where_states_are_many(seed):
    """They become smaller after a pass of 20,000 states; at the right gap the first pass finds the optimum."""
    problem = many_alike(seed)
    price = np.zeros(3)
    _core.prices(problem, -1, price, 0.0)
    _, value, _, states, choice = search(problem, 20, price)
    bound = bound_of(problem, -1, price)
    at_once = search(problem, 20, price, first_gap=(bound - value) / UNIT * 1.0001)
    assert (at_once[1], at_once[4]) == (value, choice)
    assert states > at_once[3] + 20_000


def test_bounds_are_valid_at_any_cut_of_a_search():
    """Completions distinguish states at the target. States that they drop are worth less than that."""
    cut = 0
    for seed in range(60):
        bidders, kinds = 2 + seed % 7, 1 + seed % 3
        problem = many_alike(seed, bidders, 2 + seed % 5, kinds, scale=1)
        price = np.zeros(kinds)
        _core.prices(problem, -1, price, 0.0)
        optimum = search(problem, bidders, price)[1]
        for most_states, first_gap in itertools.product((1, 2, 4, 8, 16, 40), (1e-12, 1e-6, 1e-3)):
            status, _, bound, _, _ = search(problem, bidders, price, most_states=most_states, first_gap=first_gap)
            assert bound >= optimum
            cut += status == TOO_WIDE
    assert cut > 100


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_exact_completions_reduce_states_without_changing_answers(seed):
    answers, states = set(), []
    for scale in (20, 1):
        problem = many_alike(seed, scale=scale)
        price = np.zeros(3)
        _core.prices(problem, -1, price, 0.0)
        status, value, bound, kept, choice = search(problem, 20, price)
        answers.add((status, value, bound, choice))
        states.append(kept)
    assert len(answers) == 1
    assert states[1] < 0.8 * states[0]


@pytest.mark.parametrize("name", SHAPES)
def test_a_second_search_needs_fewer_states(name):
    fewer = 0
    for rng, _, limits, _, problem, bidders in draws(name, 80):
        price = prices_of(problem, limits, rng)
        first, second = (search(problem, bidders, price) for _ in range(2))
        assert second[:3] + second[4:] == first[:3] + first[4:]
        fewer += second[3] < first[3]
    assert fewer > 0


def test_shared_pins_sum_up_to_the_free_gpus():
    """Three bidders pin 2 of 4 free GPUs: two may, whatever the limits say."""
    rows, limits, free = draw_knapsack(random.Random(0), machines=1)
    limit = limits[0].__class__(
        name=("none", 0), capacity=9, by_kind=np.zeros(1, np.int32), taken=np.zeros((1, 5), int)
    )
    three = rows.__class__(
        row_start=np.arange(4, dtype=np.int32),
        index=np.zeros(3, dtype=np.int32),
        gain=np.array([3, 2, 1], dtype=np.int64) << 40,
        gpus=np.full(3, 2, dtype=np.int32),
        tie=np.arange(3, dtype=np.int64),
        counts=np.zeros((3, 1), dtype=np.int32),
        pin_start=np.arange(4, dtype=np.int32),
        pin_machine=np.zeros(3, dtype=np.int32),
        pin_gpus=np.full(3, 2, dtype=np.int32),
    )
    free = np.array([4], dtype=np.int32)
    assert search(build_problem(three, [limit], free, UNIT), 3, np.zeros(1))[4] == (0, 1, -1)
    assert pinned_by(three, [0, 1], 1).tolist() == [4]


def test_machines_shared_one_after_the_other_do_not_see_each_other():
    """Two bidders pin 2 of 3 GPUs of one machine, two others of a second: one of each pair wins."""
    drawn, limits, _ = draw_knapsack(random.Random(0), machines=2)
    free = np.array([3, 3], dtype=np.int32)
    limit = replace(limits[0], capacity=9, by_kind=np.zeros(1, np.int32), taken=np.zeros((2, 4), np.int32))
    rows = replace(
        drawn,
        row_start=np.arange(5, dtype=np.int32),
        index=np.zeros(4, dtype=np.int32),
        gain=np.array([4, 3, 2, 5], dtype=np.int64) << 38,
        gpus=np.full(4, 2, dtype=np.int32),
        tie=np.arange(4, dtype=np.int64),
        counts=np.zeros((4, 1), dtype=np.int32),
        pin_start=np.arange(5, dtype=np.int32),
        pin_machine=np.array([0, 0, 1, 1], dtype=np.int32),
        pin_gpus=np.full(4, 2, dtype=np.int32),
    )
    assert search(build_problem(rows, [limit], free, UNIT), 4, np.zeros(1))[4] == (0, -1, -1, 3)


def test_the_bound_excludes_the_skipped_bidder():
    for _, rows, limits, _, problem, bidders in draws("no pins", 20):
        best = [max(rows.gain[first:end].tolist(), default=0) for first, end in itertools.pairwise(rows.row_start)]
        for skip in range(bidders):
            bound = bound_of(problem, skip, np.zeros(len(limits)))
            assert bound == sum(best) - best[skip]


def test_the_losses_of_chosen_rows_lie_between_the_bound_and_their_value():
    for rng, rows, limits, free, problem, _ in draws("pins that add up or not", 100):
        price = prices_of(problem, limits, rng)
        loss = np.empty(rows.rows, dtype=np.int64)
        bound = _core.losses(problem, -1, price, loss)
        assert (loss >= 0).all()
        for choice in itertools.islice(feasible_choices(rows, limits, free), 40):
            assert -rank(rows, choice)[0] <= bound - sum(int(loss[row]) for row in choice if row >= 0)


def test_any_prices_bound_the_optimum_and_found_ones_do_no_worse_than_none():
    lower = 0
    for name in SHAPES:
        for _, rows, limits, free, problem, _ in draws(name, 60):
            best = max(-rank(rows, choice)[0] for choice in feasible_choices(rows, limits, free))
            price = np.zeros(len(limits))
            at_none = bound_of(problem, -1, price)
            for warm in (False, True):
                _core.prices(problem, -1, price, warm)
                assert np.isfinite(price).all()
                assert (price >= 0).all()
                assert best <= bound_of(problem, -1, price) <= at_none + UNIT * 1e-3
            lower += bound_of(problem, -1, price) < at_none
    assert lower > 100


def test_sums_over_many_bidders_do_not_overflow():
    """Two hundred bidders who might each use all of 25 million (a learnt limit's weights on ten thousand GPUs)."""
    bidders, capacity = 200, 25_000_000
    limit = Resource(
        name=("large", 0), capacity=capacity, by_kind=np.ones(1, np.int32), taken=np.zeros((1, 2), np.int32)
    )
    rows = Rows(
        row_start=np.arange(bidders + 1, dtype=np.int32) * 2,
        index=np.tile(np.arange(2, dtype=np.int32), bidders),
        gain=np.arange(2 * bidders, dtype=np.int64) + (1 << 36),
        gpus=np.ones(2 * bidders, dtype=np.int32),
        tie=np.zeros(2 * bidders, dtype=np.int64),
        counts=np.tile(np.array([[capacity], [capacity // 4]], dtype=np.int32), (bidders, 1)),
        pin_start=np.zeros(2 * bidders + 1, dtype=np.int32),
        pin_machine=np.zeros(0, dtype=np.int32),
        pin_gpus=np.zeros(0, dtype=np.int32),
    )
    problem = build_problem(rows, [limit], np.ones(1, dtype=np.int32), UNIT)
    assert search(problem, bidders, np.array([1.0]))[1] == sum(sorted(rows.gain.tolist()[1::2])[-4:])
