"""The most weight that machines hold, and the pattern that reaches it, against all patterns."""

import itertools
import random

import numpy as np
import pytest
from core_cases import fits, one_row
from small_markets import machine

from rm_plugin.solvers.exact import _core
from themis.bids import GangRequest
from themis.cluster import Allocation, Level


class Load:
    """What can be put on machines of one rack: items (size, in a slot, weight), gangs (size, weight), GPUs, pins."""

    def __init__(self, machines, items, gangs, single, pins):
        self.machines, self.items, self.gangs, self.single, self.pins = machines, items, gangs, single, pins

    def weigh(self):
        """What the core says: the weight, and the counts."""
        free = [each.free for each in self.machines]
        slots = [each.free_slots for each in self.machines]
        count = np.empty(len(self.items) + len(self.gangs) + 1 + len(free), dtype=np.int32)

        def ints(values, kind=np.int32):
            return np.array(list(values), dtype=kind)

        most = _core.weigh(
            ints(free),
            ints(np.cumsum([0, *map(len, slots)])),
            ints(gpus for each in slots for gpus in each),
            ints(gpus for gpus, _ in self.pins),
            ints((weight for _, weight in self.pins), np.int64),
            ints(size for size, _, _ in self.items),
            ints(in_slot for _, in_slot, _ in self.items),
            ints((weight for _, _, weight in self.items), np.int64),
            ints(size for size, _ in self.gangs),
            ints((weight for _, weight in self.gangs), np.int64),
            self.single,
            count,
        )
        return most, count.tolist()

    def weight_of(self, count):
        weights = [weight for *_, weight in (*self.items, *self.gangs)]
        weights += [self.single, *(weight for _, weight in self.pins)]
        return sum(weight * many for weight, many in zip(weights, count, strict=True))

    def holds(self, count):
        """Whether the machines hold these numbers of each kind, by brute force."""
        items, gangs = len(self.items), len(self.gangs)
        asked = [
            GangRequest(size, Level.SLOT if in_slot else Level.MACHINE, many)
            for (size, in_slot, _), many in zip(self.items, count, strict=False)
            if many
        ]
        asked += [
            GangRequest(size, Level.RACK, many)
            for (size, _), many in zip(self.gangs, count[items:], strict=False)
            if many
        ]
        asked += [GangRequest(1, Level.CLUSTER, count[items + gangs])] if count[items + gangs] else []
        taken = {
            each.machine_id: gpus * many
            for each, (gpus, _), many in zip(self.machines, self.pins, count[items + gangs + 1 :], strict=True)
            if many
        }
        return (not asked and not taken) or fits(self.machines, one_row(tuple(asked), Allocation.of(taken)))

    def all_counts(self):
        """Every pattern of no more GPUs than there are."""
        total = sum(each.free for each in self.machines)
        sizes = [size for size, *_ in (*self.items, *self.gangs)]
        pins = [range(2) if gpus else range(1) for gpus, _ in self.pins]
        for whole in itertools.product(*(range(total // size + 1) for size in sizes)):
            for pinned in itertools.product(*pins):
                used = sum(size * many for size, many in zip(sizes, whole, strict=True))
                used += sum(gpus * many for (gpus, _), many in zip(self.pins, pinned, strict=True))
                if used <= total:
                    # Single GPUs fit wherever room is left.
                    yield (*whole, total - used, *pinned)


def draw(rng):
    machines = [
        machine(f"m{n}", *(rng.randint(0, 3) for _ in range(rng.randint(1, 2)))) for n in range(rng.randint(1, 2))
    ]
    kinds = sorted({(rng.randint(1, 4), rng.randint(0, 1)) for _ in range(rng.randint(1, 2))})
    items = [(size, in_slot, rng.randint(0, 9)) for size, in_slot in kinds]
    gangs = [(size, rng.randint(0, 12)) for size in sorted({rng.randint(2, 4) for _ in range(rng.randint(0, 1))})]
    pins = [(rng.randint(0, each.free), rng.randint(1, 9)) if rng.random() < 0.5 else (0, 0) for each in machines]
    pins = [(gpus, weight if gpus else 0) for gpus, weight in pins]
    return Load(machines, items, gangs, rng.choice((0, 0, 1, 3)), pins)


@pytest.mark.parametrize("seed", range(4))
def test_it_finds_the_most_weight_and_a_pattern_that_has_it(seed):
    rng = random.Random(seed)
    for _ in range(50):
        load = draw(rng)
        most, count = load.weigh()
        assert load.weight_of(count) == most
        assert load.holds(count)
        better = [other for other in load.all_counts() if load.weight_of(other) > most]
        assert not any(load.holds(other) for other in better)


def test_slots_bound_their_gangs_and_pins_use_any_slot():
    load = Load([machine("m0", 3, 3)], [(2, 1, 5)], [], 0, [(1, 3)])
    assert load.weigh() == (13, [2, 0, 1])
    load = Load([machine("m0", 3, 3)], [(2, 1, 5)], [], 0, [(3, 3)])
    assert load.weigh() == (10, [2, 0, 0])


def test_machines_larger_than_its_tables_are_refused():
    assert Load([machine("m0", 512)], [(3, 0, 1)], [], 0, [(0, 0)]).weigh()[0] == 170
    with pytest.raises(MemoryError):
        Load([machine("m0", 513)], [(3, 0, 1)], [], 0, [(0, 0)]).weigh()
