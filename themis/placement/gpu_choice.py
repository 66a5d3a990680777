"""Which GPUs of a machine a gang gets: the wanted slot, else whole slots; free GPUs before those that others lose.

GPUs of one machine are a bit mask here: the bit of each GPU's index is set. Machine 0b0110 has GPUs 1 and 2 to give.
"""

from __future__ import annotations

from collections.abc import Iterable

from themis.cluster import GpuId
from themis.errors import InvariantError
from themis.placement.free_capacity import slots_after


def masks_of(gpus: Iterable[GpuId]) -> dict[str, int]:
    """GPUs as masks by machine."""
    masks: dict[str, int] = {}
    for gpu in gpus:
        masks[gpu.machine_id] = masks.get(gpu.machine_id, 0) | 1 << gpu.index
    return masks


def mask_of(indices: Iterable[int]) -> int:
    """The mask of GPUs by index; no index may come twice."""
    return sum([1 << index for index in indices])


def indices_of(mask: int) -> list[int]:
    """The indices of a mask's GPUs, in order."""
    return [index for index in range(mask.bit_length()) if mask >> index & 1]


def slot_masks(slots: tuple[int, ...]) -> tuple[int, ...]:
    """The mask of each slot of a machine, given the number of GPUs of each slot."""
    masks, first = [], 0
    for size in slots:
        masks.append(((1 << size) - 1) << first)
        first += size
    return tuple(masks)


def count_by_slot(slots: tuple[int, ...], mask: int) -> tuple[int, ...]:
    """How many of these GPUs are in each slot."""
    return tuple((mask & slot).bit_count() for slot in slot_masks(slots))


def choose_gpus(slots: tuple[int, ...], available: int, late: int, count: int, slot: int | None) -> tuple[int, ...]:
    """Choose `count` of the available GPUs of a machine.

    GPUs that are not `late` come first. Among them: a slot that holds all of `count`, the wanted slot before others,
    then the one with the fewest available GPUs (best fit). If no slot holds all: the wanted slot, then slots as
    `slots_after` takes them: the smallest first, so that the largest stays whole if possible. Ties: the smaller index.

    Args:
        slots: Number of GPUs of each slot of the machine.
        available: The GPUs to choose from.
        late: GPUs that their holder must first give back; they may include others than the available ones.
        count: How many to choose.
        slot: The wanted slot, if any.

    Returns:
        Indices of GPUs: those of the wanted slot first, and late ones last.

    Raises:
        InvariantError: Too few GPUs are available.
    """
    if available.bit_count() < count:
        raise InvariantError(f"the machine has {available.bit_count()} GPUs to give", value=count)
    chosen = _from_slots(slots, available & ~late, count, slot)
    if len(chosen) < count:
        chosen += _from_slots(slots, available & late, count - len(chosen), slot)
    return tuple(chosen)


def choose_own_gpus(slots: tuple[int, ...], own: int, count: int, slot: int | None) -> tuple[tuple[int, ...], int]:
    """Choose which of its app's own GPUs on a machine a gang renews, at most `count`, as `choose_gpus` does.

    A gang won in a slot renews either all of itself in one slot, or GPUs of the won slot. A part of it in another slot
    would tear the gang apart.

    Returns:
        Indices of the renewed GPUs, and the mask of the app's other GPUs.
    """
    candidates = own
    if slot is not None:
        by_slot = [own & mask for mask in slot_masks(slots)]
        here = by_slot[slot] if slot < len(by_slot) else 0
        if here.bit_count() >= count or all(gpus.bit_count() < count for gpus in by_slot):
            candidates = here
    chosen = choose_gpus(slots, candidates, 0, min(count, candidates.bit_count()), slot)
    return chosen, own & ~mask_of(chosen)


def _from_slots(slots: tuple[int, ...], available: int, count: int, slot: int | None) -> list[int]:
    """Up to `count` of the available GPUs, slot by slot."""
    by_slot = [indices_of(available & mask) for mask in slot_masks(slots)]
    free = [len(indices) for indices in by_slot]
    count = min(count, sum(free))
    chosen: list[int] = []
    if slot is not None and slot < len(free) and (free[slot] >= count or max(free) < count):
        chosen, by_slot[slot] = by_slot[slot][:count], by_slot[slot][count:]
        free[slot] -= len(chosen)
    after = slots_after(tuple(free), count - len(chosen))
    return [
        *chosen,
        *(index for indices, left in zip(by_slot, after, strict=True) for index in indices[: len(indices) - left]),
    ]
