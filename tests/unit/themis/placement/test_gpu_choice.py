"""Which GPUs of a machine a grant takes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from themis.cluster import Machine
from themis.errors import InvariantError
from themis.placement.gpu_choice import choose_gpus, choose_own_gpus, count_by_slot

MACHINE = Machine(machine_id="m", rack_id="r", slots=(2, 2, 4))
SLOTS = MACHINE.slots


def mask(indices):
    return sum(1 << index for index in set(indices))


def choose(count, slot=None, available=range(8), late=()):
    return list(choose_gpus(SLOTS, mask(available), mask(late), count, slot))


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
        (5, None, range(8), [0, 1, 4, 5, 6]),
        (5, 2, range(8), [4, 5, 6, 7, 0]),
        (8, None, range(8), [0, 1, 2, 3, 4, 5, 6, 7]),
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


def test_too_few_is_a_defect():
    with pytest.raises(InvariantError, match="has 1"):
        choose(2, available=[3])


@given(
    st.integers(0, 8),
    st.none() | st.integers(0, 2),
    st.sets(st.integers(0, 7)),
    st.sets(st.integers(0, 7)),
)
def test_it_chooses_exactly_the_requested_number(count, slot, available, late):
    count = min(count, len(available))
    chosen = choose(count, slot, available, late)
    assert len(set(chosen)) == len(chosen) == count
    assert set(chosen) <= available
    prompt = available - late
    assert len(set(chosen) & prompt) == min(count, len(prompt))
    holders = [s for s in range(3) if len({i for i in prompt if MACHINE.slot_of(i) == s}) >= count]
    if holders and count:
        used = {MACHINE.slot_of(index) for index in chosen}
        assert len(used) == 1
        assert slot not in holders or used == {slot}


@given(st.integers(1, 8), st.none() | st.integers(0, 4), st.sets(st.integers(0, 7)))
def test_an_app_renews_a_gang_whole_in_some_slot_or_only_where_it_won_it(count, slot, mine):
    by_slot = {s: {i for i in mine if MACHINE.slot_of(i) == s} for s in range(len(SLOTS))}
    there = by_slot.get(slot, set())
    whole = any(len(held) >= count for held in by_slot.values())
    fitting = mine if slot is None or (whole and len(there) < count) else there
    expected = choose(min(count, len(fitting)), slot, fitting)
    chosen, left = choose_own_gpus(SLOTS, mask(mine), count, slot)
    assert list(chosen) == expected
    assert left == mask(mine - set(chosen))


@given(st.sets(st.integers(0, 7)))
def test_gpus_are_counted_by_slot(held):
    counts = tuple(sum(MACHINE.slot_of(index) == slot for index in held) for slot in range(len(SLOTS)))
    assert count_by_slot(SLOTS, mask(held)) == counts
