"""Resources: linear constraints that every feasible choice keeps, wherever its gangs are placed.

A resource gives each kind of gang a weight. A machine (or rack) holds a limited weight, and pinned GPUs take some of it
away; the sum over machines is the capacity (docs/design/auction.md, "Resources"). Each resource is valid. Together they
may admit choices without places, unless `Resources.sufficient` says otherwise.

Example: two machines with 6 and 3 free GPUs hold 9 parts of one GPU, but floor(6 / 4) + floor(3 / 4) = 1 part of 4.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise

import numpy as np

from rm_plugin.solvers.exact.market_arrays import Ints
from rm_plugin.solvers.kinds import Kind
from themis.bids import FreeMachine
from themis.cluster import Level
from themis.values import Value

_MAX_FIRST = 64
"""Resources at first. If there are more, those that the fewest GPUs use up are kept."""
_MAX_FIRST_AND_PINNED = 130
"""Resources at first, those of single machines included. The core takes 160, of which 30 are left for cuts."""


class Item(Value, frozen=True, order=True):
    """What stays whole on one machine: a slot gang, a machine gang, or one unit of a gang that spans machines."""

    gpus: int
    in_slot: bool = False


class Resource(Value, frozen=True, kw_only=True):
    """A resource: the chosen rows' weights sum up to `capacity` at most.

    Attributes:
        name: Identifies it; the first entry is "machine", "slot", "rack", "pinned" or "cut".
        capacity: The most weight that all machines hold.
        by_kind: Weight of one gang of each kind [kinds].
        taken: How much of the capacity p pinned GPUs on machine m take away [machines, most free GPUs + 1]. Beyond the
            free GPUs of a machine the last value is repeated.
    """

    name: tuple[object, ...]
    capacity: int
    by_kind: Ints
    taken: Ints


class Resources(Value, frozen=True, kw_only=True):
    """The resources of a market. `sufficient`: every choice that keeps them has places."""

    each: tuple[Resource, ...]
    sufficient: bool


def item_of(kind: Kind) -> Item:
    """The item that a gang of this kind consists of."""
    return Item(kind.unit, in_slot=kind.level is Level.SLOT)


def first_resources(
    machines: Sequence[FreeMachine], kinds: Sequence[Kind], pins: Iterable[tuple[int, int]]
) -> Resources:
    """The first resources: single GPUs, and for each size t whole parts of t GPUs in slots, machines and racks.

    They are sufficient for machine gangs whose sizes divide each other: place the largest first, on any machine with
    enough free GPUs. Every gang of size t then takes exactly one part of t, wherever it is placed.

    Args:
        machines: Free machines.
        kinds: Kinds of gangs in the market.
        pins: All (machine, GPUs) that may be pinned together.
    """
    free = np.array([machine.free for machine in machines], dtype=np.int32)
    sizes = sorted({item_of(kind).gpus for kind in kinds} - {1})
    parts = [_parts_on_machines(size, free, kinds) for size in sizes]
    single = _parts_on_machines(1, free, kinds)
    pinned = tuple(set(pins))
    kept = [single, *(part for part in parts if _can_bind(part, single, pinned))]
    near = _parts_in_slots(machines, kinds)
    wide = [part for part in _parts_in_racks(machines, kinds) if _can_bind(part, single, pinned)]
    flat = not any(kind.level in (Level.SLOT, Level.RACK) for kind in kinds)
    chain = all(larger % smaller == 0 for smaller, larger in pairwise(sizes))
    each = (*kept, *near, *wide)
    if len(each) > _MAX_FIRST:
        first = sorted(each[1:], key=lambda part: _gpus_used(part, single))[: _MAX_FIRST - 1]
        return Resources(each=(single, *first), sufficient=False)
    return Resources(each=each, sufficient=flat and chain)


def _gpus_used(part: Resource, single: Resource) -> int:
    """The least number of GPUs that use up a resource. The fewer, the more often it binds."""
    weighed = part.by_kind > 0
    return part.capacity * int((single.by_kind[weighed] // part.by_kind[weighed]).min()) if weighed.any() else 0


def _parts_on_machines(size: int, free: Ints, kinds: Sequence[Kind]) -> Resource:
    left = np.maximum(free[:, None] - np.arange(free.max(initial=0) + 1, dtype=np.int32), 0)
    most = left // size
    by_kind = np.array([kind.units * (kind.unit // size) for kind in kinds], dtype=np.int32)
    return Resource(name=("machine", size), capacity=int(most[:, 0].sum()), by_kind=by_kind, taken=most[:, :1] - most)


def _parts_in_slots(machines: Sequence[FreeMachine], kinds: Sequence[Kind]) -> list[Resource]:
    """Parts of t GPUs inside slots. Pinned GPUs take a part away only if too few GPUs are left for it."""
    free = np.array([machine.free for machine in machines], dtype=np.int32)
    left = np.maximum(free[:, None] - np.arange(free.max(initial=0) + 1, dtype=np.int32), 0)
    resources = []
    for size in sorted({kind.gpus for kind in kinds if kind.level is Level.SLOT}):
        in_slots = [sum(gpus // size for gpus in machine.free_slots) for machine in machines]
        most = np.minimum(np.array(in_slots, dtype=np.int32)[:, None], left // size)
        by_kind = np.array([kind.gpus // size if kind.level is Level.SLOT else 0 for kind in kinds], dtype=np.int32)
        taken = most[:, :1] - most
        resources.append(Resource(name=("slot", size), capacity=int(most[:, 0].sum()), by_kind=by_kind, taken=taken))
    return resources


def _parts_in_racks(machines: Sequence[FreeMachine], kinds: Sequence[Kind]) -> list[Resource]:
    """Parts of a rack gang's size, in its units, inside racks.

    What pinned GPUs take from a rack depends on all pins there. The table counts what those of one machine take alone.
    """
    numbers = {rack: number for number, rack in enumerate({machine.rack_id: None for machine in machines})}
    rack_of = np.array([numbers[machine.rack_id] for machine in machines], dtype=np.int64)
    free = np.array([machine.free for machine in machines], dtype=np.int32)
    pinned = np.arange(free.max(initial=0) + 1, dtype=np.int32)
    resources = []
    for unit, units in sorted({(kind.unit, kind.units) for kind in kinds if kind.level is Level.RACK}):
        by_rack = np.bincount(rack_of, weights=free // unit).astype(np.int64) // units
        by_kind = [
            kind.units * (kind.unit // unit // units)
            if kind.level is Level.CLUSTER
            else kind.units * (kind.unit // unit) // units
            for kind in kinds
        ]
        taken = np.repeat((pinned // unit // units)[None, :], len(machines), axis=0)
        resources.append(
            Resource(
                name=("rack", unit, units),
                capacity=int(by_rack.sum()),
                by_kind=np.array(by_kind, dtype=np.int32),
                taken=taken,
            )
        )
    return resources


def pinned_resources(free: Ints, kinds: int, asked: Ints) -> list[Resource]:
    """The GPUs of single machines on which bidders may pin more than are free, those with the largest excess first.

    Args:
        free: Free GPUs by machine.
        kinds: Number of kinds; their gangs have no weight here.
        asked: The most that all bidders together pin on each machine [machines].
    """
    fought_over = [machine for machine in np.argsort(free - asked, kind="stable") if asked[machine] > free[machine]]
    # Each kind has at most one resource of its size, and one inside slots or racks.
    first = min(_MAX_FIRST, 1 + 2 * kinds)
    resources = []
    for machine in fought_over[: _MAX_FIRST_AND_PINNED - first]:
        taken = np.zeros((len(free), int(free.max()) + 1), dtype=np.int32)
        taken[machine] = np.arange(taken.shape[1])
        resources.append(
            Resource(
                name=("pinned", int(machine)),
                capacity=int(free[machine]),
                by_kind=np.zeros(kinds, dtype=np.int32),
                taken=taken,
            )
        )
    return resources


def _can_bind(part: Resource, single: Resource, pins: Iterable[tuple[int, int]]) -> bool:
    """Whether the resource of single GPUs does not imply this one.

    A gang of weight w asks for at least s * w GPUs, with s the least GPUs per weight. So no choice uses more than
    (all GPUs) / s of this resource, which its capacity may allow anyway.
    """
    weighed = part.by_kind > 0
    if not weighed.any():
        return False
    least = int((single.by_kind[weighed] // part.by_kind[weighed]).min())
    pins_too = all(part.taken[m, p] * least <= p for m, p in pins)
    return not (pins_too and part.capacity * least >= single.capacity)
