"""Which GPUs of a machine a grant takes: the asked slot, else whole slots; free ones before lost ones.

A set of GPUs of one machine is a number here, with the bit of each GPU's index set. What is chosen follows from a few
small numbers, and a busy cluster asks the same over and over: answers are remembered.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from themis.errors import InvariantError

_REMEMBERED = 1 << 14


@lru_cache(_REMEMBERED)
def choose_gpus(slots: tuple[int, ...], available: int, late: int, count: int, slot: int | None) -> tuple[int, ...]:
    """Choose `count` of the available GPUs of a machine; too few available is a defect and raises InvariantError.

    `late` GPUs, which their holder must first give back, come last. Within that: a slot that holds all of `count`, the
    wanted one before others, of these the one with the fewest available GPUs (best fit); where none does, the wanted
    slot, then the fullest ones, so that as few slots as possible are broken. Ties by index.

    Args:
        slots: Number of GPUs of each slot of the machine.
        available: The GPUs to choose from.
        late: Those of them that come last, and maybe others.
        count: How many to choose.
        slot: The wanted slot, if any.

    Returns:
        Indices of GPUs, in the order in which they are taken.
    """
    if available.bit_count() < count:
        raise InvariantError(f"the machine has {available.bit_count()} GPUs to give", value=count)
    chosen = _from_slots(slots, available & ~late, count, slot)
    if len(chosen) < count:
        chosen += _from_slots(slots, available & late, count - len(chosen), slot)
    return tuple(chosen)


@lru_cache(_REMEMBERED)
def choose_own_gpus(slots: tuple[int, ...], mine: int, count: int, slot: int | None) -> tuple[tuple[int, ...], int]:
    """Which of its app's own GPUs on a machine a gang renews, at most `count`, as `choose_gpus` does; and the others.

    A gang won in a slot renews all of itself in some slot, or GPUs of its own slot: a part of it in another slot would
    tear the gang apart.
    """
    fitting = mine
    if slot is not None:
        by_slot = [mine & whole for whole in slot_masks(slots)]
        there = by_slot[slot] if slot < len(by_slot) else 0
        if there.bit_count() >= count or all(gpus.bit_count() < count for gpus in by_slot):
            fitting = there
    chosen = choose_gpus(slots, fitting, 0, min(count, fitting.bit_count()), slot)
    return chosen, mine & ~mask_of(chosen)


@lru_cache(_REMEMBERED)
def count_by_slot(slots: tuple[int, ...], gpus: int) -> tuple[int, ...]:
    """How many of these GPUs each slot has."""
    return tuple((gpus & whole).bit_count() for whole in slot_masks(slots))


@lru_cache(_REMEMBERED)
def slot_masks(slots: tuple[int, ...]) -> tuple[int, ...]:
    """The GPUs of each slot of a machine."""
    masks, first = [], 0
    for size in slots:
        masks.append(((1 << size) - 1) << first)
        first += size
    return tuple(masks)


def mask_of(indices: Iterable[int]) -> int:
    """The GPUs of these indices, each named once."""
    return sum([1 << index for index in indices])


def _from_slots(slots: tuple[int, ...], pool: int, count: int, slot: int | None) -> list[int]:
    if count <= 0:
        return []
    by_slot = [_indices(pool & whole) for whole in slot_masks(slots)]

    def order(number: int) -> tuple[bool, bool, int, int]:
        size = len(by_slot[number])
        fits = size >= count
        return (not fits, number != slot, size if fits else -size, number)

    ordered = [index for number in sorted(range(len(by_slot)), key=order) for index in by_slot[number]]
    return ordered[:count]


def _indices(gpus: int) -> list[int]:
    return [index for index in range(gpus.bit_length()) if gpus >> index & 1]
