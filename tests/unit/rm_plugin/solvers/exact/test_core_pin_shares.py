"""Shares of shared pins: never more than the pins use together, and worth something."""

import random

import numpy as np
import pytest
from core_cases import bound_of, draw_knapsack, feasible_choices, rank

from rm_plugin.solvers.exact import _core
from rm_plugin.solvers.exact.knapsack import build_problem
from rm_plugin.solvers.exact.market_arrays import Rows
from rm_plugin.solvers.exact.resources import Resource

UNIT = 2.0**40


@pytest.mark.parametrize("machines", [1, 3])
def test_the_bound_holds_for_any_pin_shares(machines):
    rng, changed = random.Random(machines), 0
    for _ in range(150):
        rows, limits, free = draw_knapsack(rng, bidders=4, kinds=1, machines=machines)
        problem = build_problem(rows, limits, free, UNIT)
        bidders = len(rows.row_start) - 1
        for _ in range(2):
            price = np.array([rng.uniform(0, 0.4) for _ in limits])
            changed += _core.share(problem, rng.choice((-1, *range(bidders))), price)
        without = np.empty(bidders, dtype=np.int64)
        _core.bounds(problem, price, without)
        for skip in range(-1, bidders):
            best = max(-rank(rows, choice)[0] for choice in feasible_choices(rows, limits, free, skip))
            bound = bound_of(problem, skip, price)
            assert best <= bound
            assert skip < 0 or bound == without[skip]
    assert changed > 20


def two_renew_and_one_asks_for_the_machine():
    """Of a machine of 8 GPUs two bidders hold 4 each, worth 3; a third asks for 8 GPUs on one machine, worth 5."""
    rows = Rows(
        row_start=np.arange(4, dtype=np.int32),
        index=np.zeros(3, dtype=np.int32),
        gain=np.array([3, 3, 5], dtype=np.int64) << 36,
        gpus=np.array([4, 4, 8], dtype=np.int32),
        tie=np.arange(3, dtype=np.int64),
        counts=np.array([[0], [0], [1]], dtype=np.int32),
        pin_start=np.array([0, 1, 2, 2], dtype=np.int32),
        pin_machine=np.zeros(2, dtype=np.int32),
        pin_gpus=np.full(2, 4, dtype=np.int32),
    )
    eights = Resource(
        name=("machine", 8),
        capacity=1,
        by_kind=np.ones(1, dtype=np.int32),
        taken=np.array([[0, *[1] * 8]], dtype=np.int32),
    )
    return build_problem(rows, [eights], np.array([8], dtype=np.int32), UNIT)


@pytest.mark.parametrize("skip", [-1, 0, 1])
def test_the_first_pin_on_a_machine_is_charged_for_the_part_that_it_takes(skip):
    """Without shares both would be free, and the bound their worth and that of the whole machine."""
    problem = two_renew_and_one_asks_for_the_machine()
    price = np.zeros(1)
    _core.prices(problem, skip, price, 0.0)
    _core.share(problem, skip, price)
    _core.prices(problem, skip, price, 0.0)
    bound = bound_of(problem, skip, price)
    free = 11 if skip < 0 else 8
    charged = 8 if skip < 0 else 5
    assert charged - 0.01 <= bound / 2**36 <= charged + 0.01 < free


def test_shares_of_the_same_prices_are_the_same():
    rng = random.Random(4)
    for _ in range(40):
        rows, limits, free = draw_knapsack(rng, bidders=4, kinds=1, machines=2)
        price = np.array([rng.uniform(0, 0.4) for _ in limits])
        bounds = []
        for _ in range(2):
            problem = build_problem(rows, limits, free, UNIT)
            _core.share(problem, -1, price)
            bounds.append(bound_of(problem, -1, price))
        assert bounds[0] == bounds[1]
