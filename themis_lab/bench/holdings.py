"""Leases at the start of a round: gangs that continue, and renewable gangs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from random import Random

from msgspec.structs import replace

from am.agent.model.views import AppView
from am.app_view import held_gang
from themis.bids import FreeMachine
from themis.cluster import Cluster, GpuId
from themis.values import Value
from themis_lab.bench.apps import GangMix

_STATES = {"kept": 0.5, "up": 0.35, "partly_up": 0.15}
"""Shares of a bidder's gangs: not renewable, fully renewable, partly renewable."""

_LEASED = (0.3, 0.7)


class ClusterState(StrEnum):
    """All GPUs free, or machines partly leased to gangs of these and other apps."""

    EMPTY = "empty"
    FRAGMENTED = "fragmented"


class Holdings(Value, frozen=True, kw_only=True):
    """The apps with their gangs, and the machines with the round's offer."""

    apps: tuple[AppView, ...]
    machines: tuple[FreeMachine, ...]


def nothing_held(apps: Sequence[AppView], cluster: Cluster) -> Holdings:
    """An empty cluster: no app holds a GPU."""
    return Holdings(apps=tuple(apps), machines=offered(cluster, cluster.gpu_ids()))


def draw_holdings(
    apps: Sequence[AppView], cluster: Cluster, gangs: GangMix, share_gpus: float, rng: Random, *, renewals: bool
) -> Holdings:
    """Return a fragmented cluster.

    Each bidder holds gangs of up to twice its fair share, on random machines where they fit on one. Half of its gangs
    continue, a third are renewable, the rest partly (all continue without `renewals`). Gangs of other apps, whose
    leases continue, bring the cluster to 30 to 70 % leased.

    Args:
        apps: The bidders, without GPUs.
        cluster: All machines.
        gangs: Sizes of the other apps' gangs.
        share_gpus: The fair share R/N, in GPUs.
        rng: Source of all randomness.
        renewals: Whether bidders hold renewable gangs.
    """
    floor = _Floor(cluster, rng)
    up: list[GpuId] = []
    holding = [_draw_held(app, floor, share_gpus, rng, up, renewals=renewals) for app in apps]
    leased = round(cluster.gpus * rng.uniform(*_LEASED))
    while cluster.gpus - floor.free_gpus - len(up) < leased and floor.take(rng.choice(gangs.gpus), 1):
        pass
    return Holdings(apps=tuple(holding), machines=offered(cluster, (*floor.free, *up)))


def offered(cluster: Cluster, gpus: Sequence[GpuId]) -> tuple[FreeMachine, ...]:
    """Every machine with those of its GPUs, by slot, that are among `gpus`."""
    free: dict[str, list[int]] = {machine.machine_id: [0] * len(machine.slots) for machine in cluster.machines}
    for gpu in gpus:
        free[gpu.machine_id][cluster.machine(gpu.machine_id).slot_of(gpu.index)] += 1
    return tuple(
        FreeMachine(machine_id=machine.machine_id, rack_id=machine.rack_id, free_slots=tuple(free[machine.machine_id]))
        for machine in cluster.machines
    )


def _draw_held(
    app: AppView, floor: _Floor, share_gpus: float, rng: Random, up: list[GpuId], *, renewals: bool
) -> AppView:
    """The app with gangs for some of its jobs. Adds the renewable GPUs to `up`."""
    shape = app.median_job.shape
    wanted = round(rng.uniform(0.0, 2.0) * share_gpus / shape.demand_max_gpus)
    held = []
    for job in app.jobs[: max(wanted, int(rng.random() < 0.5))]:
        gpus = floor.take(rng.randint(shape.min_tasks, shape.tasks) * shape.gpus_per_task, shape.gpus_per_task)
        ending = gpus[: _draw_ending(rng, len(gpus))] if renewals else ()
        if gpus:
            held.append(held_gang(job.job_id, gpus, ending, floor.cluster))
            up += ending
    return replace(app, held=tuple(held))


def _draw_ending(rng: Random, gpus: int) -> int:
    """How many GPUs of a gang are renewable: none, all, or some."""
    kept, up, _ = _STATES
    state = rng.choices(list(_STATES), list(_STATES.values()))[0]
    if state == kept:
        return 0
    return gpus if state == up else rng.randint(1, max(1, gpus - 1))


class _Floor:
    """Free GPUs by machine, from which gangs are taken."""

    def __init__(self, cluster: Cluster, rng: Random) -> None:
        self.cluster = cluster
        self.free_gpus = cluster.gpus
        self._rng = rng
        self._free = {
            machine.machine_id: [GpuId(machine.machine_id, index) for index in range(machine.gpus)]
            for machine in cluster.machines
        }

    @property
    def free(self) -> tuple[GpuId, ...]:
        """All free GPUs."""
        return tuple(gpu for gpus in self._free.values() for gpu in gpus)

    def take(self, gpus: int, unit: int) -> tuple[GpuId, ...]:
        """Take GPUs for a gang: on a random machine if it fits on one, else across machines.

        Empty if there is no space.
        """
        fitting = [machine for machine, free in self._free.items() if len(free) >= gpus]
        parts = {self._rng.choice(fitting): gpus} if fitting else self._spread(gpus, unit)
        taken = tuple(gpu for machine, count in parts.items() for gpu in self._free[machine][:count])
        for machine, count in parts.items():
            del self._free[machine][:count]
        self.free_gpus -= len(taken)
        return taken

    def _spread(self, gpus: int, unit: int) -> Mapping[str, int]:
        """Take whole units from the machines with most free GPUs, rack by rack in random order.

        Empty if there is no space.
        """
        racks = list(self.cluster.racks.values())
        self._rng.shuffle(racks)
        parts: dict[str, int] = {}
        for rack in racks:
            for machine in sorted(rack, key=lambda machine: -len(self._free[machine.machine_id])):
                room = min(len(self._free[machine.machine_id]), gpus - sum(parts.values()))
                parts[machine.machine_id] = room - room % unit
        return {machine: count for machine, count in parts.items() if count} if sum(parts.values()) == gpus else {}
