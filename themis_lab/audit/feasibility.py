"""Checks that wins are feasible: no GPU is used twice, gangs match their rows, pinned GPUs are exactly those named."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from rm_plugin.solvers.port import Win
from themis.bids import BidRow, FreeMachine, GangRequest, Market, PlacedGang
from themis.cluster import level_across
from themis_lab.audit.matching import all_served


def infeasible(market: Market, wins: Mapping[str, Win]) -> list[str]:
    """Return what is wrong with wins; an empty list if every row is honoured and no GPU is used twice.

    Every gang must have the size, level, slot and unit that its row requests, on machines of the market. Pinned GPUs
    must be those of the row, gang by gang.
    """
    machines = {machine.machine_id: machine for machine in market.machines}
    bids = {bid.app_id: bid for bid in market.bids}
    problems = overused(market.machines, (gang for win in wins.values() for gang in win.gangs))
    if problems:
        return problems
    for app_id, win in wins.items():
        if app_id not in bids or not 0 <= win.row < len(bids[app_id].rows):
            problems.append(f"{app_id} wins row {win.row}, which it did not bid")
            continue
        problems += [f"{app_id}: {problem}" for problem in _broken(bids[app_id].rows[win.row], win, machines)]
    return problems


def overused(machines: Iterable[FreeMachine], gangs: Iterable[PlacedGang]) -> list[str]:
    """Return machines and slots whose gangs use more GPUs than are free."""
    by_id = {machine.machine_id: machine for machine in machines}
    used: Counter[str] = Counter()
    in_slot: Counter[tuple[str, int]] = Counter()
    for gang in gangs:
        for machine_id, count in gang.gpus:
            used[machine_id] += count
            if gang.slot is not None:
                in_slot[machine_id, gang.slot] += count
    problems = [
        f"{count} GPUs of {machine_id} are given, {by_id[machine_id].free if machine_id in by_id else 0} are free"
        for machine_id, count in sorted(used.items())
        if machine_id not in by_id or count > by_id[machine_id].free
    ]
    if problems:
        return problems
    return [
        f"{count} GPUs of slot {slot} of {machine_id} are given, {_free_in(by_id[machine_id], slot)} are free"
        for (machine_id, slot), count in sorted(in_slot.items())
        if count > _free_in(by_id[machine_id], slot)
    ]


def _free_in(machine: FreeMachine, slot: int) -> int:
    return machine.free_slots[slot] if 0 <= slot < len(machine.free_slots) else 0


def _broken(row: BidRow, win: Win, machines: Mapping[str, FreeMachine]) -> Iterator[str]:
    rack_of = {machine_id: machine.rack_id for machine_id, machine in machines.items()}
    for gang in win.gangs:
        if gang.level is not level_across(gang.gpus.by_machine(), rack_of, gang.slot):
            yield f"a gang on {gang.gpus.by_machine()} is said to span {gang.level.label}"
    pinned = sorted(gang.gpus for gang in win.gangs if gang.pinned)
    if pinned != sorted(row.pinned_parts):
        yield f"pinned GPUs {[part.by_machine() for part in pinned]} are not those of row {win.row}"
    asked = [gang for gang in row.gangs for _ in range(gang.count)]
    placed = [gang for gang in win.gangs if not gang.pinned]
    if len(asked) != len(placed) or not all_served(asked, placed, lambda one, other: _serves(one, other, machines)):
        yield f"the gangs of row {win.row} are not those that were placed"


def _serves(asked: GangRequest, gang: PlacedGang, machines: Mapping[str, FreeMachine]) -> bool:
    types = {machines[machine_id].device for machine_id, _ in gang.gpus}
    if len(types) != 1 or asked.device not in ("", *types):
        return False
    near_enough = gang.level <= asked.within or asked.gpus == 1
    return gang.gpus.gpus == asked.gpus and near_enough and all(count % asked.unit_gpus == 0 for _, count in gang.gpus)
