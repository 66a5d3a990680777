"""Which GPUs of a machine a grant takes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rm_plugin.arbiter.gpu_choice import choose_gpus
from themis.cluster import GpuId, Machine
from themis.errors import InvariantError

MACHINE = Machine(machine_id="m", rack_id="r", slots=(2, 2, 4))


def gpus(*indices):
    return [GpuId("m", index) for index in indices]


def choose(count, slot=None, available=range(8), late=(), machine=MACHINE):
    return [gpu.index for gpu in choose_gpus(machine, gpus(*available), set(gpus(*late)), count, slot)]


@pytest.mark.parametrize(
    ("count", "slot", "available", "expected"),
    [
        (1, None, range(8), [0]),
        (2, None, range(8), [0, 1]),
        (3, None, range(8), [4, 5, 6]),
        (2, None, [0, 2, 3, 4, 5, 6, 7], [2, 3]),
        (1, None, [0, 2, 3, 4, 5, 6, 7], [0]),
        (2, 2, range(8), [4, 5]),
        (2, 1, range(8), [2, 3]),
        (5, None, range(8), [4, 5, 6, 7, 0]),
        (8, None, range(8), [4, 5, 6, 7, 0, 1, 2, 3]),
        (0, None, range(8), []),
    ],
)
def test_best_fit_among_slots(count, slot, available, expected):
    assert choose(count, slot, available) == expected


def test_a_slot_that_cannot_hold_all_is_worth_less_than_one_that_can():
    assert choose(2, 0, [0, 2, 3]) == [2, 3]


def test_late_gpus_come_last_even_when_that_breaks_a_slot():
    assert choose(2, None, range(4), late=[0, 1]) == [2, 3]
    assert choose(3, None, range(4), late=[0, 1]) == [2, 3, 0]
    assert choose(2, 0, [0, 1, 2], late=[0, 1]) == [2, 0]


def test_gpus_of_other_machines_are_left_alone():
    chosen = choose_gpus(MACHINE, [GpuId("a", 0), *gpus(5), GpuId("z", 0)], (), 1, None)
    assert chosen == gpus(5)


def test_too_few_is_a_defect():
    with pytest.raises(InvariantError, match="m has 1"):
        choose(2, available=[3])


@given(
    st.integers(0, 8),
    st.none() | st.integers(0, 2),
    st.sets(st.integers(0, 7)),
    st.sets(st.integers(0, 7)),
    st.randoms(use_true_random=False),
)
def test_it_gives_exactly_what_was_asked_whatever_the_order(count, slot, available, late, rng):
    count = min(count, len(available))
    chosen = choose(count, slot, sorted(available), late)
    assert len(set(chosen)) == len(chosen) == count
    assert set(chosen) <= available
    prompt = available - late
    assert len(set(chosen) & prompt) == min(count, len(prompt))
    assert choose(count, slot, rng.sample(sorted(available), len(available)), late) == chosen
    holders = [s for s in range(3) if len({i for i in prompt if MACHINE.slot_of(i) == s}) >= count]
    if holders and count:
        used = {MACHINE.slot_of(index) for index in chosen}
        assert len(used) == 1
        assert slot not in holders or used == {slot}
