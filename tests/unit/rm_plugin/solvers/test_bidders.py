"""Rows that are beaten are left out, in time that grows as the rows do."""

import numpy as np
import pytest
from small_markets import bid, gang, machine, market, row

from rm_plugin.solvers import bidders
from rm_plugin.solvers.bidders import bidders_of
from themis.cluster import Level


def kept(*rows):
    """Which of a bid's rows are kept, by their place there."""
    given = market([machine("m0", 4, 4), machine("m1", 4, 4)], bid("a", 0.1, *rows))
    return [each.row for each in bidders_of(given)[0].rows]


def rows_of(asked):
    """Rows ever less worth, by how many gangs of one and of two GPUs they ask for."""
    return [
        row(0.9 - number / 100, *(gang(gpus, Level.MACHINE, many) for gpus, many in ((1, one), (2, two)) if many))
        for number, (one, two) in enumerate(asked)
    ]


@pytest.mark.parametrize("most", [3, 4, 1_000])
def test_rows_that_one_of_the_nearest_before_beats_are_left_out(monkeypatch, most):
    """All that no row beats are kept; of the beaten ones those may be that only rows further up beat."""
    monkeypatch.setattr(bidders, "_MAX_COMPARED", most)
    rng = np.random.default_rng(7)
    beaten_from_afar = 0
    for _ in range(30):
        asked = [(int(one), int(two)) for one, two in rng.integers(0, 4, (14, 2)) if one + two]
        beats = [
            [at for at in range(n) if asked[at][0] <= each[0] and asked[at][1] <= each[1]]
            for n, each in enumerate(asked)
        ]
        left = kept(*rows_of(asked))
        for number, others in enumerate(beats):
            if not others:
                assert number in left
            elif number - max(others) <= most:
                assert number not in left
            elif number in left:
                beaten_from_afar += 1
    assert (beaten_from_afar > 0) == (most < 1_000)


def test_no_row_is_compared_with_more_than_two_thousand(monkeypatch):
    """Numbers compared in one go, of a bid with five thousand rows: no more than a thousand with those and theirs."""
    sizes = []
    true = np.triu

    def triu(table, k):
        sizes.append(table.shape)
        return true(table, k=k)

    monkeypatch.setattr(bidders.np, "triu", triu)
    rng = np.random.default_rng(3)
    rows = [
        row(float(value), gang(1, Level.MACHINE, int(many)))
        for value, many in zip(rng.uniform(0.2, 0.9, 5_000), rng.integers(1, 17, 5_000), strict=True)
    ]
    left = kept(*rows)
    assert sizes == [(1_000, 1_000)] + [(2_000, 1_000)] * 4
    best = max(range(5_000), key=lambda number: rows[number].value)
    assert left[0] == best
