"""The covering programme: patterns cover a choice, or weights cut it off; tested against all patterns."""

import itertools
import random

import highspy
import numpy as np
import pytest

from rm_plugin.solvers.exact import _core

MADE_UP, TOO_MUCH = 0, 1


def ints(values):
    return np.array(list(values), dtype=np.int32)


class Wanted:
    """Classes of single machines (free GPUs, how many), and how many items of each size go on them."""

    def __init__(self, classes, items):
        self.classes, self.items, self.sizes = classes, items, sorted(items)
        free = [gpus for gpus, _ in classes]
        self.core = _core.cover(
            ints(range(len(free) + 1)),
            ints(free),
            ints(range(len(free) + 1)),
            ints(free),
            ints([0] * len(free)),
            ints([-1] * len(free)),
            ints(times for _, times in classes),
            ints(self.sizes),
            ints([0] * len(self.sizes)),
            ints([]),
            ints([*(items[size] for size in self.sizes), 0]),
        )
        self.duals = np.zeros(len(self.sizes) + 1)

    def price(self):
        return _core.cover_price(self.core, self.duals)

    def column(self, number):
        numbers = np.empty(len(self.sizes) + 1, dtype=np.int32)
        return _core.cover_pattern(self.core, number, numbers), numbers

    def patterns(self, free):
        """Everything that a machine holds."""
        every = itertools.product(*(range(free // size + 1) for size in self.sizes))
        return [each for each in every if sum(map(int.__mul__, self.sizes, each)) <= free]

    def missing(self):
        """The least that can be missing, by a linear programme over all patterns."""
        model = highspy.Highs()
        model.setOptionValue("output_flag", False)
        short = [model.addVariable(lb=0.0) for _ in self.sizes]
        held = [[] for _ in self.sizes]
        for free, times in self.classes:
            taken = []
            for pattern in self.patterns(free):
                taken.append(model.addVariable(lb=0.0))
                for number, many in enumerate(pattern):
                    held[number].append(many * taken[-1])
            model.addConstr(sum(taken) <= times)
        for number, size in enumerate(self.sizes):
            model.addConstr(sum(held[number]) + short[number] >= self.items[size])
        model.minimize(sum(short))
        return model.getInfo().objective_function_value

    def most_weight(self):
        """The most that all machines hold by the last duals."""
        weights = self.duals[:-1].tolist()
        return sum(
            times * max(sum(map(float.__mul__, weights, map(float, each))) for each in self.patterns(free))
            for free, times in self.classes
        )

    def asked_weight(self):
        return sum(self.duals[number] * self.items[size] for number, size in enumerate(self.sizes))


def draw(rng):
    classes = [(free, rng.randint(1, 6)) for free in sorted(rng.sample(range(1, 9), rng.randint(1, 4)))]
    total = sum(free * times for free, times in classes)
    items = {size: rng.randint(0, total // (2 * size) + 1) for size in rng.sample((1, 2, 3, 4, 5, 7), 3)}
    return Wanted(classes, items)


@pytest.mark.parametrize("seed", range(4))
def test_coverage_equals_that_of_all_patterns(seed):
    rng = random.Random(seed)
    said = []
    for _ in range(25):
        wanted = draw(rng)
        answer = wanted.price()
        assert answer == (TOO_MUCH if wanted.missing() > 1e-6 else MADE_UP)
        if answer == TOO_MUCH:
            assert wanted.asked_weight() > wanted.most_weight() + 1e-6
        said.append(answer)
    assert 3 < sum(said) < 22


def test_fixed_patterns_are_asked_for_no_more_and_forbidden_ones_are_not_used():
    """Three machines of 4 hold six pairs, or four pairs and a gang of three and a single GPU."""
    wanted = Wanted([(4, 3)], {2: 4, 3: 1})
    assert wanted.price() == MADE_UP
    pattern, times = _core.cover_fullest(wanted.core)
    group, covered = wanted.column(pattern)
    assert (group, times) == (0, 2)
    assert covered.tolist() == [2, 0, 0]
    _core.cover_fix(wanted.core, pattern, times)
    assert wanted.column(-1)[1].tolist() == [0, 1, 0]
    assert wanted.price() == MADE_UP
    last, times = _core.cover_fullest(wanted.core)
    assert (wanted.column(last)[1].tolist(), times) == ([0, 1, 0], 1)
    _core.cover_forbid(wanted.core, last)
    assert wanted.price() == TOO_MUCH
    _core.cover_fix(wanted.core, pattern, -times)
    assert wanted.column(-1)[1].tolist() == [2, 1, 0]
