"""Which GPUs of a machine a grant takes: the asked slot, else whole slots; free ones before lost ones."""

from __future__ import annotations

from collections.abc import Container, Iterable

from themis.cluster import GpuId, Machine
from themis.errors import InvariantError


def choose_gpus(
    machine: Machine, available: Iterable[GpuId], late: Container[GpuId], count: int, slot: int | None
) -> list[GpuId]:
    """Choose `count` of the available GPUs of a machine; too few available is a defect and raises InvariantError.

    `late` GPUs, which their holder must first give back, come last. Within that: a slot that holds all of `count`, the
    wanted one before others, of these the one with the fewest available GPUs (best fit); where none does, the wanted
    slot, then the fullest ones, so that as few slots as possible are broken. Ties by index.
    """
    here = sorted((gpu for gpu in available if gpu.machine_id == machine.machine_id), key=_index)
    if len(here) < count:
        raise InvariantError(f"machine {machine.machine_id} has {len(here)} GPUs to give", value=count)
    prompt = [gpu for gpu in here if gpu not in late]
    chosen = _from_slots(machine, prompt, count, slot)
    if len(chosen) < count:
        chosen += _from_slots(machine, [gpu for gpu in here if gpu in late], count - len(chosen), slot)
    return chosen


def whole_or_there(machine: Machine, mine: set[GpuId], count: int, slot: int) -> set[GpuId]:
    """What a gang won in a slot may renew: all of itself in some slot, or GPUs of its own slot.

    A part of it in another slot would tear the gang apart.
    """
    by_slot: dict[int, set[GpuId]] = {}
    for gpu in mine:
        by_slot.setdefault(machine.slot_of(gpu.index), set()).add(gpu)
    there = by_slot.get(slot, set())
    whole = [gpus for gpus in by_slot.values() if len(gpus) >= count]
    return there if len(there) >= count or not whole else mine


def _index(gpu: GpuId) -> int:
    return gpu.index


def _from_slots(machine: Machine, pool: list[GpuId], count: int, slot: int | None) -> list[GpuId]:
    if count <= 0:
        return []
    by_slot: dict[int, list[GpuId]] = {}
    for gpu in pool:
        by_slot.setdefault(machine.slot_of(gpu.index), []).append(gpu)

    def order(number: int) -> tuple[bool, bool, int, int]:
        size = len(by_slot[number])
        fits = size >= count
        return (not fits, number != slot, size if fits else -size, number)

    ordered = [gpu for number in sorted(by_slot, key=order) for gpu in by_slot[number]]
    return ordered[:count]
