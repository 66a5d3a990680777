"""Gangs on random GPUs: how a scheduler places them that knows nothing of machines and racks."""

from __future__ import annotations

import random
from collections import Counter

from rm_plugin.arbiter.seeds import child_seed
from themis.bids import GangDemand, PlacedGang
from themis.cluster import Allocation
from themis.placement.best_fit import CurrentGang, best_fit
from themis.placement.free_capacity import FreeCapacity


def blind_fit(capacity: FreeCapacity, demand: GangDemand, current: CurrentGang | None, seed: int) -> PlacedGang | None:
    """The largest gang that a job can use, on random GPUs. Takes nothing.

    A task's GPUs stay on one machine, and a gang on one device type, since a job could not run otherwise. Of several
    types it is a random one. An extension that would make the job slower is placed by best fit instead: the job would
    give it back.

    Example: machines m0 and m1 have four free GPUs each. A gang of four gets all of one machine in 2 of 70 cases.

    Args:
        capacity: Free GPUs.
        demand: Between `min_gpus` and `max_gpus` GPUs in addition to `current`, in units of `unit_gpus`.
        current: The gang that the job has.
        seed: The same seed, job and free GPUs give the same place.
    """
    rng = random.Random(child_seed(seed, "blind", demand.job_id))
    types = capacity.device_types if current is None else (capacity.device_of(current.gpus.counts[0][0]),)
    for device in rng.sample(types, len(types)):
        here = capacity.of_type(device)
        free = [machine for machine, count in sorted(here.units(demand.unit_gpus).items()) for _ in range(count)]
        units = min(len(free), demand.max_gpus // demand.unit_gpus)
        if demand.speeds.on(device) <= 0.0 or units == 0 or units * demand.unit_gpus < demand.min_gpus:
            continue
        counts = Counter(rng.sample(free, units))
        gpus = Allocation.of({machine: count * demand.unit_gpus for machine, count in counts.items()})
        own = () if current is None else [machine for machine, _ in current.gpus]
        level = capacity.level_of([*own, *counts])
        named = device if len(capacity.device_types) > 1 or demand.speeds.by_type else ""
        held = 0 if current is None else current.gpus.gpus
        if (held + gpus.gpus) * demand.speeds.on(device) / demand.slowdown.at(level) > _speed_now(
            capacity, demand, current
        ):
            return PlacedGang(gpus=gpus, level=level, device=named)
    return best_fit(capacity, demand, current)


def _speed_now(capacity: FreeCapacity, demand: GangDemand, current: CurrentGang | None) -> float:
    """The throughput that an extension must exceed."""
    if current is None:
        return demand.faster_than
    machines = [machine for machine, _ in current.gpus]
    level = capacity.level_of(machines, current.slot)
    speed = current.gpus.gpus * demand.speeds.on(capacity.device_of(machines[0])) / demand.slowdown.at(level)
    return max(demand.faster_than, speed)
