"""Leftovers: give GPUs that the auction left free to apps that can use them (NSDI'20, section 3.3.2)."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from typing import TypeVar

from msgspec import field
from msgspec.structs import replace

from rm_plugin.arbiter.seeds import child_digests
from themis.apps import Slowdown
from themis.bids import GangDemand, PlacedGang
from themis.cluster import Allocation
from themis.errors import InputError
from themis.placement.best_fit import CurrentGang, best_fit, best_fit_within
from themis.placement.free_capacity import FreeCapacity, SlotCounts
from themis.speeds import Speeds
from themis.values import Value

T = TypeVar("T")


class AppDemand(Value, frozen=True, kw_only=True):
    """The unmet demand of an app. The caller has already subtracted what the auction gave.

    Attributes:
        app_id: The app.
        demands: One per job, in the order in which jobs are served.
        renewable: Free GPUs that the app held until now. Jobs placed there go on without a restart.
        renewable_slots: How many of them are in each slot, by machine. `share_leftovers` does not use it.
        bid: Whether the app took part in the auction. Apps that did not are served first.
        restart_s: Seconds that moving a running job costs.
    """

    app_id: str
    demands: tuple[GangDemand, ...]
    renewable: Allocation = field(default_factory=Allocation)
    renewable_slots: SlotCounts = ()
    bid: bool = False
    restart_s: float = 0.0


def share_leftovers(
    capacity: FreeCapacity, app_demands: Sequence[AppDemand], rng_seed: int
) -> dict[str, dict[str, PlacedGang]]:
    """Give out free GPUs until no app can use another one.

    Apps that did not bid come first, then the bidders. Within each group, in random order, every app renews what it
    held. Then the apps take turns, one job per turn, at the best fit (`themis.placement`). A job that got less than its
    largest gang is extended in later turns, as long as that makes it faster. If machines have several device types, the
    apps that are relatively fastest on the type that they would take come first in each turn (`_relative_speed`).

    The order of an app is drawn from the seed and its id, so the order of `app_demands` does not matter.

    Example: m0 has four free GPUs in one slot, m1 has one. App a did not bid and has two jobs of 1 to 2 GPUs, app b bid
    and has one such job. Each job of a gets two GPUs of m0, and the job of b the GPU of m1.

    Args:
        capacity: Free GPUs; granted gangs are taken from it. It must know all machines of the demands' `held` gangs.
        app_demands: One per app.
        rng_seed: The round's seed.

    Returns:
        Gangs by job by app, only for apps that got one. An extended gang is one gang. It does not repeat the GPUs that
        the demand says are `held`, but its level includes them.
    """
    ids = [app_demand.app_id for app_demand in app_demands]
    if len(set(ids)) != len(ids):
        raise InputError("two demands of one app for the leftovers", value=sorted(ids))
    granted: dict[str, dict[str, PlacedGang]] = {}
    unplaceable: set[_DemandKey] = set()
    for bid in (False, True):
        if capacity.gpus:
            group = [app_demand for app_demand in app_demands if app_demand.bid is bid]
            queues = _serve(capacity, group, rng_seed, unplaceable)
            granted |= {queue.app_demand.app_id: gangs for queue in queues if (gangs := queue.gangs())}
    return dict(sorted(granted.items()))


def _serve(
    capacity: FreeCapacity, app_demands: Sequence[AppDemand], rng_seed: int, unplaceable: set[_DemandKey]
) -> Collection[_JobQueue]:
    """Serve the apps of one group. Returns the queue of every app that had a turn."""
    # Free capacity only shrinks. An app that needs more than all of it gets neither a turn nor a draw: those are
    # most of the apps, since most GPUs that become free at once are renewed.
    renewing = [
        app_demand for app_demand in app_demands if app_demand.renewable.counts and _fits(app_demand, capacity.gpus)
    ]
    queues = {
        app_demand.app_id: _JobQueue(app_demand, unplaceable) for app_demand in _in_random_order(renewing, rng_seed)
    }
    for queue in queues.values():
        queue.renew(capacity)
    others = [
        app_demand for app_demand in app_demands if not app_demand.renewable.counts and _fits(app_demand, capacity.gpus)
    ]
    turns: list[_JobQueue] = []
    first = _in_random_order([*renewing, *others], rng_seed) if capacity.gpus else []
    for app_demand in _relatively_fastest_first(first, lambda app_demand: app_demand.demands[0], capacity):
        if not capacity.gpus:
            break
        queue = queues.setdefault(app_demand.app_id, _JobQueue(app_demand, unplaceable))
        if queue.step(capacity):
            turns.append(queue)
    while turns and capacity.gpus:
        ordered = _relatively_fastest_first(turns, lambda queue: queue.next_demand, capacity)
        turns = [queue for queue in ordered if capacity.gpus and queue.step(capacity)]
    return queues.values()


def _relatively_fastest_first(items: list[T], demand_of: Callable[[T], GangDemand], capacity: FreeCapacity) -> list[T]:
    """Apps in the order of a turn. Ties keep their order, and on one device type all tie."""
    if len(capacity.device_types) < 2:
        return items
    return sorted(items, key=lambda item: -_relative_speed(demand_of(item), capacity))


def _relative_speed(demand: GangDemand, capacity: FreeCapacity) -> float:
    """A job's speed on the type that it would take next, divided by its mean speed on all types.

    Example: a K80 and a V100 are free, and the speeds of two jobs on them are (1, 2) and (1, 5). Both would take the
    V100. Their relative speeds there are 2 / 1.5 = 1.33 and 5 / 3 = 1.67: the second takes it, and the first the K80.
    If only the K80 is free, the relative speeds are 0.67 and 0.33, and the first takes it.
    """
    types = capacity.device_types
    if demand.held.counts:
        taken = demand.speeds.on(capacity.device_of(demand.held.counts[0][0]))
    else:
        fitting = [name for name in types if capacity.of_type(name).gpus >= demand.min_gpus]
        taken = max(map(demand.speeds.on, fitting), default=0.0)
    mean = math.fsum(map(demand.speeds.on, types)) / len(types)
    return taken / mean if mean else 0.0


def _in_random_order(app_demands: Collection[AppDemand], rng_seed: int) -> list[AppDemand]:
    ids = [app_demand.app_id for app_demand in app_demands]
    # App ids are unique, so `AppDemand` objects are never compared.
    draws = zip(child_digests(rng_seed, ("leftovers",), ids), ids, app_demands, strict=True)
    return [app_demand for _, _, app_demand in sorted(draws)]


def _fits(app_demand: AppDemand, gpus: int) -> bool:
    """Whether `gpus` GPUs are enough for the smallest gang of a job."""
    # Called for every app; `any` over a generator takes three times as long.
    for demand in app_demand.demands:  # noqa: SIM110
        if demand.min_gpus <= gpus:
            return True
    return False


_DemandKey = tuple[int, int, int, float, Slowdown, Speeds]
"""Smallest and largest gang, unit, throughput to exceed, S and speeds: demands with equal keys find the same place, or
none."""


class _JobQueue:
    """An app's jobs with the gangs that they got so far.

    `unplaceable` is shared by all queues: keys of demands that found no place for a new gang. Free capacity only
    shrinks, so equal demands find none either.
    """

    def __init__(self, app_demand: AppDemand, unplaceable: set[_DemandKey]) -> None:
        self.app_demand = app_demand
        self._unplaceable = unplaceable
        self._got: dict[int, PlacedGang] = {}
        # Jobs before this one can use nothing more. As capacity only shrinks, each job fails at most once.
        self._first_open = 0

    def gangs(self) -> dict[str, PlacedGang]:
        """Gang by job id, jobs in the order of its demands."""
        return {self.app_demand.demands[job].job_id: self._got[job] for job in sorted(self._got)}

    @property
    def next_demand(self) -> GangDemand:
        """The demand of the first job that can still use something, or of the last job."""
        demands = self.app_demand.demands
        return demands[min(self._first_open, len(demands) - 1)]

    def renew(self, capacity: FreeCapacity) -> None:
        """Place jobs, in order, on the GPUs that the app held, as far as these are free."""
        renewable, demands = self.app_demand.renewable, self.app_demand.demands
        if len(demands) == 1 and not demands[0].held.counts:
            gang = best_fit_within(capacity, renewable, demands[0])
            if gang is not None:
                self._accept(capacity, 0, gang)
            return
        own = capacity.part(renewable.by_machine())
        for job in range(len(demands)):
            if not own.gpus:
                return
            gang = self._best_fit(own, job)
            if gang is not None:
                own.take(gang)
                self._accept(capacity, job, gang)

    def step(self, capacity: FreeCapacity) -> bool:
        """Place or extend the first job that can use free GPUs. Returns False if there is none."""
        while self._first_open < len(self.app_demand.demands) and capacity.gpus:
            job = self._first_open
            demand = self.app_demand.demands[job]
            key = None if job in self._got or demand.held.counts else _key(demand)
            gang = None if key in self._unplaceable else self._best_fit(capacity, job)
            if gang is not None:
                self._accept(capacity, job, gang)
                return True
            if key is not None:
                self._unplaceable.add(key)
            self._first_open += 1
        return False

    def _best_fit(self, capacity: FreeCapacity, job: int) -> PlacedGang | None:
        """The best fit of a job's new gang, or of an extension of what it has."""
        demand, got = self.app_demand.demands[job], self._got.get(job)
        if got is None:
            return best_fit(capacity, demand, CurrentGang(gpus=demand.held) if demand.held.counts else None)
        if got.gpus.gpus >= demand.max_gpus:
            return None
        slot = None if demand.held else got.slot
        rest = replace(demand, min_gpus=demand.unit_gpus, max_gpus=demand.max_gpus - got.gpus.gpus)
        return best_fit(capacity, rest, CurrentGang(gpus=demand.held + got.gpus, slot=slot))

    def _accept(self, capacity: FreeCapacity, job: int, gang: PlacedGang) -> None:
        capacity.take(gang)
        got = self._got.get(job)
        if got is not None:
            gang = PlacedGang(gpus=got.gpus + gang.gpus, level=gang.level, slot=gang.slot, device=gang.device)
        self._got[job] = gang


def _key(demand: GangDemand) -> _DemandKey:
    bounds = demand.min_gpus, demand.max_gpus, demand.unit_gpus
    return *bounds, demand.faster_than, demand.slowdown, demand.speeds
