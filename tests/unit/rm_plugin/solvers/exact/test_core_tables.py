"""The compiled branch and bound on markets of tables, against all choices of rows."""

import itertools
import random
import time

import numpy as np
import pytest

from rm_plugin.solvers.exact import _core

UNIT = 2.0**40
OPTIMAL, OUT_OF_TIME, TOO_WIDE = 0, 1, 2
SHAPES = {
    "few of each": {"bidders": 3, "rows": 4, "machines": 3},
    "fought over": {"bidders": 5, "rows": 4, "machines": 2},
    "many ties": {"bidders": 4, "rows": 4, "machines": 3, "gains": 2},
    "one machine": {"bidders": 5, "rows": 3, "machines": 1},
    "large machines": {"bidders": 4, "rows": 5, "machines": 2, "most_free": 50},
    "gains of any size": {"bidders": 4, "rows": 4, "machines": 3, "unit": 2.0**20},
}
WIDE = {"bidders": 12, "rows": 25, "machines": 14, "most_free": 8}


class Drawn:
    """A random market of tables: rows by bidder as (gain, GPUs by machine, digest), best first."""

    def __init__(self, rng, *, bidders, rows, machines, most_free=6, gains=10**6, unit=UNIT):
        self.unit = unit
        self.free = [rng.randint(1, most_free) for _ in range(machines)]
        self.tables = [
            sorted((self._row(rng, gains) for _ in range(rng.randint(0, rows))), key=lambda row: -row[0])
            for _ in range(bidders)
        ]
        self.rows = [row for table in self.tables for row in table]

    def _row(self, rng, gains):
        named = rng.sample(range(len(self.free)), rng.randint(1, min(3, len(self.free))))
        pins = {machine: rng.randint(1, self.free[machine]) for machine in sorted(named)}
        gain = rng.randint(1, gains) * (int(self.unit) // 10**6 + 1)
        return gain, pins, rng.getrandbits(36)

    def compiled(self, *, always_ties=False):
        def array(numbers, dtype=np.int32):
            return np.array(list(numbers), dtype=dtype)

        pins = [pin for _, pinned, _ in self.rows for pin in pinned.items()]
        return _core.tables(
            self.unit,
            always_ties,
            array(itertools.accumulate(map(len, self.tables), initial=0)),
            array((gain for gain, _, _ in self.rows), np.int64),
            array(sum(pinned.values()) for _, pinned, _ in self.rows),
            array((digest for _, _, digest in self.rows), np.int64),
            array(itertools.accumulate((len(pinned) for _, pinned, _ in self.rows), initial=0)),
            array(machine for machine, _ in pins),
            array(gpus for _, gpus in pins),
            array(self.free),
        )

    def rank(self, choice):
        """The less the better: gain, then GPUs, then digests; None where it does not fit."""
        taken = [self.rows[row] for row in choice if row >= 0]
        for machine, free in enumerate(self.free):
            if sum(pinned.get(machine, 0) for _, pinned, _ in taken) > free:
                return None
        gain = sum(row[0] for row in taken)
        return -gain, sum(sum(row[1].values()) for row in taken), sum(row[2] for row in taken)

    def choices(self, skip):
        ends = list(itertools.accumulate(map(len, self.tables), initial=0))
        options = [
            (-1,) if bidder == skip else (-1, *range(ends[bidder], ends[bidder + 1]))
            for bidder in range(len(self.tables))
        ]
        return itertools.product(*options)


def best_of(tables, bidders, *, skip=-1, seconds=60.0, most_nodes=0, most_bytes=2**30):
    choice = np.full(bidders, 77, dtype=np.int32)
    status, value, bound, nodes = _core.best_of_tables(tables, skip, seconds, most_nodes, most_bytes, choice)
    return status, value, bound, nodes, tuple(choice.tolist())


@pytest.mark.parametrize("name", SHAPES)
def test_every_problem_of_a_market_ends_at_the_best_choice_and_of_equals_at_the_first_in_the_order_of_ties(name):
    rng = random.Random(name)
    winners = 0
    for _ in range(25):
        drawn = Drawn(rng, **SHAPES[name])
        tables, bidders = drawn.compiled(), len(drawn.tables)
        for skip in (-1, *range(bidders)):
            ranks = {choice: drawn.rank(choice) for choice in drawn.choices(skip)}
            best = min((choice for choice, rank in ranks.items() if rank is not None), key=lambda each: ranks[each])
            status, value, bound, _, choice = best_of(tables, bidders, skip=skip)
            assert (status, value, bound) == (OPTIMAL, -ranks[best][0], -ranks[best][0])
            # Nobody wins what is found without a bidder, so equals are not told apart there.
            assert ranks[choice] == ranks[best] if skip < 0 else ranks[choice][0] == ranks[best][0]
            winners += sum(row >= 0 for row in choice)
    assert winners > 50


def test_equals_are_told_apart_without_a_bidder_too_where_that_is_asked_for():
    rng = random.Random(2)
    for _ in range(25):
        drawn = Drawn(rng, **SHAPES["many ties"])
        tables, bidders = drawn.compiled(always_ties=True), len(drawn.tables)
        for skip in range(bidders):
            ranks = [rank for rank in map(drawn.rank, drawn.choices(skip)) if rank is not None]
            assert drawn.rank(best_of(tables, bidders, skip=skip)[4]) == min(ranks)


def test_the_order_of_the_problems_changes_no_value():
    drawn = Drawn(random.Random(3), **WIDE)
    bidders = range(-1, len(drawn.tables))
    forth, back = drawn.compiled(), drawn.compiled()
    first = {skip: best_of(forth, len(drawn.tables), skip=skip) for skip in bidders}
    second = {skip: best_of(back, len(drawn.tables), skip=skip) for skip in reversed(bidders)}
    assert {skip: found[:3] for skip, found in first.items()} == {skip: found[:3] for skip, found in second.items()}
    assert first[-1][4] == second[-1][4]


def test_out_of_nodes_memory_or_time_the_choice_fits_and_the_bound_lies_above_the_optimum():
    stopped = set()
    for seed in range(20):
        drawn = Drawn(random.Random(seed), **WIDE)
        bidders = len(drawn.tables)
        optimum = best_of(drawn.compiled(), bidders)
        assert optimum[0] == OPTIMAL
        for limits in ({"most_nodes": 1}, {"most_nodes": 10}, {"most_bytes": 20_000}, {"seconds": 0.0}):
            status, value, bound, _, choice = best_of(drawn.compiled(), bidders, **limits)
            stopped.add((*limits, status))
            assert -drawn.rank(choice)[0] == value <= optimum[1] <= bound
    assert stopped >= {("most_nodes", TOO_WIDE), ("most_bytes", TOO_WIDE), ("seconds", OUT_OF_TIME)}


def test_where_too_many_are_worth_the_same_the_value_is_proven_all_the_same():
    drawn = Drawn(random.Random(0), bidders=0, rows=0, machines=10, most_free=1)
    drawn.tables = [[(5, {machine: 1}, 1) for machine in range(10)] for _ in range(10)]
    drawn.rows = [row for table in drawn.tables for row in table]
    status, value, bound, nodes, choice = best_of(drawn.compiled(), 10)
    assert (status, value, bound, drawn.rank(choice)[0]) == (TOO_WIDE, 50, 50, -50)
    assert nodes < 50_000
    # Without a bidder equals are not told apart: there is nothing to give up.
    assert best_of(drawn.compiled(), 10, skip=3)[:3] == (OPTIMAL, 45, 45)


@pytest.mark.parametrize("limit_s", [0.0, 0.05])
def test_the_limit_holds_for_large_tables_too_from_the_first_relaxation_on(limit_s):
    drawn = Drawn(random.Random(1), bidders=150, rows=20, machines=150, most_free=8)
    tables = drawn.compiled()
    for skip in (-1, 0):
        begin_s = time.process_time()
        status, value, bound, _, choice = best_of(tables, 150, skip=skip, seconds=limit_s)
        assert time.process_time() - begin_s < limit_s + 0.2
        assert status == OUT_OF_TIME
        assert 0 < -drawn.rank(choice)[0] == value <= bound


def test_what_a_problem_out_of_time_left_of_the_relaxation_the_next_finishes():
    drawn = Drawn(random.Random(4), **WIDE)
    optimum = best_of(drawn.compiled(), 12)
    tables = drawn.compiled()
    assert best_of(tables, 12, seconds=0.0)[0] == OUT_OF_TIME
    assert best_of(tables, 12) == optimum


@pytest.mark.parametrize(("skip", "length"), [(-2, 3), (3, 3), (0, 2), (0, 4)])
def test_bidders_that_are_not_there_and_choices_of_another_length_are_refused(skip, length):
    tables = Drawn(random.Random(0), bidders=3, rows=2, machines=2).compiled()
    with pytest.raises(ValueError, match="a bidder that is not there"):
        best_of(tables, length, skip=skip)


def test_without_rows_nobody_wins():
    drawn = Drawn(random.Random(0), bidders=2, rows=0, machines=2)
    assert best_of(drawn.compiled(), 2) == (OPTIMAL, 0, 0, best_of(drawn.compiled(), 2)[3], (-1, -1))
