"""Lifted weights of pinned GPUs: never so large that the cut forbids a choice that has places."""

import itertools
import random

import numpy as np
import pytest

from rm_plugin.solvers.exact import _core


def ints(values, kind=np.int32):
    return np.array(list(values), dtype=kind)


class Rack:
    """Machines of one slot each, weights of items, gangs and single GPUs, and a pin (GPUs, weight) a machine."""

    def __init__(self, rng):
        self.free = [rng.randint(1, 4) for _ in range(rng.randint(1, 3))]
        self.pins = [(rng.randint(1, free), rng.randint(0, 3)) if rng.random() < 0.4 else (0, 0) for free in self.free]
        self.items = [(size, rng.randint(0, 6)) for size in sorted(rng.sample((1, 2, 3, 4), 2))]
        self.gangs = [(size, rng.randint(0, 8)) for size in sorted(rng.sample((2, 3, 5), rng.randint(0, 2)))]
        self.single = rng.choice((0, 0, 1))

    def _arrays(self, free, pins):
        return (
            ints(free),
            ints(range(len(free) + 1)),
            ints(self.free),
            ints(gpus for gpus, _ in pins),
            ints((weight for _, weight in pins), np.int64),
            ints(size for size, _ in self.items),
            ints([0] * len(self.items)),
            ints((weight for _, weight in self.items), np.int64),
            ints(size for size, _ in self.gangs),
            ints((weight for _, weight in self.gangs), np.int64),
            self.single,
        )

    def beside(self, pinned):
        """The most weight of items and gangs in addition to the pinned GPUs of each machine."""
        count = np.empty(len(self.items) + len(self.gangs) + 1 + len(self.free), dtype=np.int32)
        left = [free - gpus for free, gpus in zip(self.free, pinned, strict=True)]
        return _core.weigh(*self._arrays(left, [(0, 0)] * len(self.free)), count)

    def lift(self):
        taken = np.empty((len(self.free), max(self.free) + 2), dtype=np.int32)
        return _core.lift(*self._arrays(self.free, self.pins), taken), taken.tolist()


@pytest.mark.parametrize("seed", range(4))
def test_no_choice_of_pins_weighs_more_than_the_rack_holds_and_none_may_count_more(seed):
    rng = random.Random(seed)
    counted = 0
    for _ in range(60):
        rack = Rack(rng)
        most, taken = rack.lift()
        weighed = {
            pinned: rack.beside(pinned) + sum(here[gpus] for here, gpus in zip(taken, pinned, strict=True))
            for pinned in itertools.product(*(range(free + 1) for free in rack.free))
        }
        assert max(weighed.values()) <= most
        for machine, (free, (gpus, weight)) in enumerate(zip(rack.free, rack.pins, strict=True)):
            assert taken[machine][0] == 0
            assert taken[machine] == sorted(taken[machine])
            assert taken[machine][free + 1] == taken[machine][free]
            assert taken[machine][gpus] >= weight
            for pinned in range(1, free + 1):
                # One more, and some choice would break the limit that fits.
                assert max(every for pins, every in weighed.items() if pins[machine] == pinned) == most
                counted += taken[machine][pinned]
    assert counted > 100
