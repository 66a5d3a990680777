"""The compiled pruning of rows against dominance spelt out."""

import itertools
import random

import numpy as np
import pytest

from rm_plugin.solvers.exact import _core


def pruned(row_start, needs, pins):
    keep = np.full(len(needs), 7, dtype=np.uint8)
    _core.prune(
        np.array(row_start, dtype=np.int32),
        needs.shape[1],
        needs.astype(np.int32),
        np.cumsum([0, *map(len, pins)]).astype(np.int32),
        np.array([machine for row in pins for machine in sorted(row)], dtype=np.int32),
        np.array([row[machine] for row in pins for machine in sorted(row)], dtype=np.int32),
        keep,
    )
    return keep.tolist()


def undominated(row_start, needs, pins):
    def beats(a, b):
        pins_less = all(gpus <= pins[b].get(machine, 0) for machine, gpus in pins[a].items())
        return pins_less and (needs[a] <= needs[b]).all()

    keep = []
    for first, end in itertools.pairwise(row_start):
        keep += [not any(beats(other, row) for other in range(first, row)) for row in range(first, end)]
    return keep


@pytest.mark.parametrize("columns", [1, 2, 3])
def test_a_row_goes_when_one_before_it_needs_no_more_of_anything(columns):
    rng = random.Random(columns)
    seen = set()
    for _ in range(300):
        row_start = np.cumsum([0, *(rng.randint(0, 6) for _ in range(rng.randint(1, 4)))]).tolist()
        rows = row_start[-1]
        needs = np.array([[rng.randint(0, 3) for _ in range(columns)] for _ in range(rows)]).reshape(-1, columns)
        pins = [{m: rng.randint(1, 3) for m in range(3) if rng.random() < 0.4} for _ in range(rows)]
        expected = undominated(row_start, needs, pins)
        assert pruned(row_start, needs, pins) == expected
        seen |= set(expected)
    assert seen == {True, False}


def test_rows_of_other_bidders_beat_nothing():
    assert pruned([0, 1, 2], np.array([[0], [5]]), [{}, {}]) == [1, 1]


def test_identical_rows_keep_the_first():
    assert pruned([0, 3], np.array([[2], [2], [1]]), [{0: 1}, {0: 1}, {0: 2}]) == [1, 0, 1]
