from functools import reduce
from operator import add
from random import Random

from themis.sums import sum_in_order


def test_each_partial_sum_is_rounded():
    assert sum_in_order([1e16, 1.0, -1e16]) == 0.0


def test_random_numbers_add_up_as_in_a_loop():
    rng = Random(1)
    for _ in range(100):
        values = [rng.uniform(-1.0, 1.0) * 10.0 ** rng.randint(-9, 9) for _ in range(rng.randint(1, 50))]
        assert sum_in_order(iter(values)) == reduce(add, values)


def test_no_numbers_add_up_to_zero():
    assert sum_in_order([]) == 0.0
