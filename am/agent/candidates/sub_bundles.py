"""Sub-bundle candidates: what is left of an offer if other apps win some of its machines.

Each candidate uses all GPUs of some machines, with gangs at their tightest levels. Only for gangs of one size at
several levels, where the best division of a bundle is obvious. Identical machines form a class. For each class
several counts of machines are tried, more for classes of more GPUs, in all combinations. Example: two classes of 4
machines, of which 0, 2 or 4 are left, make 9 combinations.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from am.agent.candidates.gang_kinds import Candidate
from am.agent.candidates.search_space import SearchSpace
from themis.cluster import Level

Counts = NDArray[np.int64]

_MAX_COMBINATIONS = 600
"""Most combinations of machines that are left of each class: more would make bids slower and longer."""


def sub_bundle_candidates(space: SearchSpace, _found: Sequence[Candidate] = ()) -> list[Candidate]:
    """Distinct candidates that use the whole offer, or what is left of it if other apps win machines.

    Returns an empty list if gangs come in several sizes or at one level, or a bid has several tables.
    """
    kinds, capacity = space.kinds, space.capacity
    one_size = len({(kind.at.gpus, kind.unit_gpus) for kind in kinds}) == 1
    if capacity is None or space.tables > 1 or len(kinds) < 2 or not one_size:
        return []
    free, slots, rack_of = capacity.free, capacity.slots, capacity.rack_of
    machines = sorted(free)
    racks = {name: rack for rack, name in enumerate(sorted({rack_of.get(each, "") for each in machines}))}
    in_rack = np.zeros((len(machines), len(racks)), dtype=np.int64)
    in_rack[np.arange(len(machines)), [racks[rack_of.get(each, "")] for each in machines]] = 1
    size, unit = kinds[0].at.gpus, kinds[0].unit_gpus
    of_slots = np.array([sum(count // size for count in slots.get(each, ())) for each in machines])
    gpus = np.array([free[each] for each in machines])
    left = _machines_left(machines, free, slots)
    units = left @ (in_rack * (gpus // unit)[:, None])
    most = {
        Level.SLOT: left @ of_slots,
        Level.MACHINE: left @ (gpus // size),
        Level.RACK: (units // (size // unit)).sum(axis=1),
        Level.CLUSTER: units.sum(axis=1) // (size // unit),
    }
    within = np.minimum(np.column_stack([most[kind.within] for kind in kinds]), space.max_gangs)
    candidates = np.diff(within, axis=1, prepend=0)
    return [candidate for candidate in dict.fromkeys(map(tuple, candidates.tolist())) if any(candidate)]


def _machines_left(machines: Sequence[str], free: Mapping[str, int], slots: Mapping[str, Sequence[int]]) -> Counts:
    """P x machines: which ones are left, by combinations of the counts of each class of identical machines."""
    classes: dict[tuple[int, ...], list[int]] = {}
    for index, machine in enumerate(machines):
        classes.setdefault((free[machine], *slots.get(machine, ())), []).append(index)
    members = [classes[each] for each in sorted(classes)]
    steps = _steps([len(some) for some in members], [sum(free[machines[index]] for index in some) for some in members])
    choices = [_spread_out(some, len(machines), count) for some, count in zip(members, steps, strict=True)]
    together = itertools.islice(itertools.product(*choices), _MAX_COMBINATIONS)
    return np.array([np.sum(choice, axis=0) for choice in together])


def _steps(members: Sequence[int], gpus: Sequence[int]) -> list[int]:
    """The number of counts to try for each class.

    Starts at two and adds one to the class whose counts are most GPUs apart, while the combinations stay within the
    limit.
    """
    steps = [2] * len(members)
    while True:
        more = [number for number, count in enumerate(steps) if count <= members[number]]
        more = [
            number for number in more if math.prod(steps) // steps[number] * (steps[number] + 1) <= _MAX_COMBINATIONS
        ]
        if not more:
            return steps
        steps[max(more, key=lambda number: gpus[number] / (steps[number] - 1))] += 1


def _spread_out(members: Sequence[int], machines: int, steps: int) -> list[Counts]:
    """Choices of all, fewer and no machines of a class, evenly spaced: names of one rack are usually adjacent."""
    counts = sorted({round(len(members) * step / (steps - 1)) for step in range(steps)}, reverse=True)
    chosen = []
    for count in counts:
        left = np.zeros(machines, dtype=np.int64)
        left[[members[number * len(members) // count] for number in range(count)]] = 1
        chosen.append(left)
    return chosen
