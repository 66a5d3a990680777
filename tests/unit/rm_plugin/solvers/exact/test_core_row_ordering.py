"""Compiled rows against numpy's: gains, digests, order, and which are left out."""

import itertools
import math
import random
from array import array
from itertools import pairwise

import numpy as np
import pytest

from rm_plugin.solvers.exact import _core
from rm_plugin.solvers.exact.market_arrays import Rows

FINEST, BITS = 40, 60


def mixed(number):
    """The finaliser of splitmix64."""
    number = (number + np.uint64(0x9E3779B97F4A7C15)) * np.uint64(0xBF58476D1CE4E5B9)
    return (number ^ (number >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)


def drawn(rng, bidders, most_rows=5, kinds=3, machines=4, empties=(0.1, 0.2), values=(0.1, 0.3, 0.5, 2.0)):
    """What bids say, as lists: few different values and asks, so that many rows are alike, and some gain too little."""
    rows_of = [rng.randint(0, most_rows) for _ in range(bidders)]
    total = sum(rows_of)
    cells = [(row, rng.randrange(kinds), rng.randint(1, 2)) for row in range(total) for _ in range(rng.randint(0, 2))]
    pins = [(row, m, rng.randint(1, 2)) for row in range(total) for m in range(machines) if rng.random() < 0.3]
    empty = [rng.choice(empties) for _ in range(bidders)]
    worth = [rng.choice([each for each in values if each > nothing] or [1e9]) for nothing in np.repeat(empty, rows_of)]
    little = [nothing * (1 + 1e-14) or 1e-9 for nothing in np.repeat(empty, rows_of).tolist()]
    return {
        "row_start": np.cumsum([0, *rows_of]).tolist(),
        "empty": empty,
        "app": [rng.choice((7, 8, rng.randrange(1 << 32))) for _ in range(bidders)],
        "value": [some if rng.random() < 0.8 else less for some, less in zip(worth, little, strict=True)],
        "index": [place for many in rows_of for place in range(many)],
        "gpus": [rng.randint(1, 3) for _ in range(total)],
        "cell": cells,
        "place": rng.sample(range(kinds), kinds),
        "pin": pins,
    }


def compiled(listed, kinds):
    types = {"row_start": "i", "empty": "d", "app": "q", "value": "d", "index": "i", "gpus": "i", "place": "i"}
    flat = {name: array(code, listed[name]) for name, code in types.items()}
    flat |= {name: array("i", [number for each in listed[name] for number in each]) for name in ("cell", "pin")}
    order = ("row_start", "empty", "app", "value", "index", "gpus", "cell", "place", "pin")
    out = Rows.allocate(len(listed["empty"]), len(listed["value"]), kinds, len(listed["pin"]))
    parts = (out.row_start, out.index, out.gain, out.gpus, out.tie)
    parts += (out.counts, out.pin_start, out.pin_machine, out.pin_gpus)
    unit, rows, pins, alike = _core.order_rows(FINEST, BITS, *(flat[name] for name in order), *parts)
    return out.first(rows, pins), unit, alike


def by_numpy(listed, kinds):
    """The same with numpy's functions, a row at a time where that is plainer."""
    starts, empty = np.array(listed["row_start"]), np.array(listed["empty"])
    bidder = np.repeat(np.arange(len(empty)), np.diff(starts))
    logs = np.array([math.log(value) for value in listed["value"]])
    gain = logs - np.array([math.log(value) if value > 0 else 0.0 for value in listed["empty"]])[bidder]
    rescued = empty[bidder] == 0
    rescue = 1.0 + 2.0 * sum_of_best(np.abs(gain), starts) if rescued.any() else 0.0
    unit = 2.0 ** min(FINEST, BITS - math.ceil(math.log2(sum_of_best(gain + rescue * rescued, starts) + 1.0)))
    whole = np.rint(gain * unit).astype(np.int64) + round(rescue * unit) * rescued
    counts = np.zeros((len(gain), kinds), dtype=np.int64)
    for row, kind, count in listed["cell"]:
        counts[row, listed["place"][kind]] += count
    digest = np.array(listed["app"], dtype=np.uint64)[bidder]
    for kind in range(kinds):
        digest = mixed(digest + counts[:, kind].astype(np.uint64))
    pinned = np.zeros(len(gain), dtype=np.uint64)
    rows = np.array([row for row, _, _ in listed["pin"]], dtype=np.intp)
    places = np.array([machine * 65_537 + gpus for _, machine, gpus in listed["pin"]], dtype=np.uint64)
    np.add.at(pinned, rows, mixed(places))
    tie = (mixed(digest + pinned) >> np.uint64(28)).astype(np.int64)
    order = np.lexsort((listed["index"], tie, listed["gpus"], -whole, bidder))
    order = order[whole[order] > 0]
    pins = [[(machine, gpus) for row, machine, gpus in listed["pin"] if row == place] for place in order]
    alike = any(
        (bidder[one], whole[one], listed["gpus"][one], tie[one])
        == (bidder[two], whole[two], listed["gpus"][two], tie[two])
        and pins[place + 1]
        for place, (one, two) in enumerate(pairwise(order))
    )
    content = {
        "row_start": [0, *np.cumsum([np.count_nonzero(bidder[order] == each) for each in range(len(empty))]).tolist()],
        "index": [listed["index"][row] for row in order],
        "gain": whole[order].tolist(),
        "gpus": [listed["gpus"][row] for row in order],
        "tie": tie[order].tolist(),
        "counts": counts[order].tolist(),
        "pin_start": [0, *np.cumsum([len(each) for each in pins]).tolist()],
        "pin_machine": [machine for each in pins for machine, _ in each],
        "pin_gpus": [gpus for each in pins for _, gpus in each],
    }
    return content, unit, alike


def sum_of_best(gain, starts):
    some = np.diff(starts) > 0
    return float(np.maximum.reduceat(gain, starts[:-1][some]).sum()) if some.any() else 0.0


@pytest.mark.parametrize(
    ("bidders", "empties"),
    [(0, (0.1,)), (1, (0.1, 0.2)), (4, (0.1, 0.3)), (6, (0.0, 0.2)), (40, (0.0, 1e-9)), (300, (1e-3, 0.4))],
)
def test_as_numpy_has_it(bidders, empties):
    rng, seen = random.Random(bidders), set()
    for _ in range(60 if bidders < 40 else 6):
        values = (0.1, 0.3, 0.5, 2.0) if rng.random() < 0.5 else tuple(10.0 ** rng.uniform(-9, 9) for _ in range(50))
        listed = drawn(rng, bidders, empties=empties, values=values)
        rows, unit, alike = compiled(listed, 3)
        content, its_unit, its_alike = by_numpy(listed, 3)
        assert (unit, alike) == (its_unit, its_alike)
        assert {name: getattr(rows, name).tolist() for name in content} == content
        seen |= {alike, rows.rows < len(listed["value"])}
    assert bidders < 2 or seen == {True, False}


@pytest.mark.parametrize("seed", range(100))
def test_on_one_machine_the_best_choice_is_the_one_that_trying_all_finds(seed):
    rng = random.Random(seed)
    rows_of, free = [rng.choice([0, 1, 2, 3]) for _ in range(rng.choice([0, 1, 2, 5]))], rng.randint(0, 6)
    start = np.cumsum([0, *rows_of]).astype(np.int32)
    # Few different gains and GPUs, so that many choices are equal but for their digests, which are sums of no others.
    gain, gpus = np.zeros(sum(rows_of), dtype=np.int64), np.zeros(sum(rows_of), dtype=np.int32)
    for row in range(sum(rows_of)):
        gain[row], gpus[row] = rng.randint(1, 3), rng.randint(1, 4)
    tie = np.array([1 << row for row in rng.sample(range(40), sum(rows_of))], dtype=np.int64)

    def of(numbers, choice):
        return int(sum(numbers[row] for row in choice.values()))

    for skip in range(-1, len(rows_of)):
        ways = [[None] if i == skip else [None, *range(start[i], start[i + 1])] for i in range(len(rows_of))]
        choices = [{i: row for i, row in enumerate(choice) if row is not None} for choice in itertools.product(*ways)]
        fitting = [choice for choice in choices if of(gpus, choice) <= free]
        best = min(fitting, key=lambda choice: (-of(gain, choice), of(gpus, choice), of(tie, choice)))
        assert _core.best_on_one_machine(start, gain, gpus, tie, free, skip) == best
