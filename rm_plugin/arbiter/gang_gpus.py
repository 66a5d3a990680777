"""Which GPUs the gangs of a round get: those that their app holds and may renew first, then free ones, then others'."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from rm_plugin.arbiter.free_gpus import masks_of
from rm_plugin.arbiter.gpu_choice import choose_gpus, choose_own_gpus, mask_of
from themis.bids import PlacedGang
from themis.cluster import Cluster, GpuId
from themis.errors import InvariantError
from themis.leases import Lease


@dataclass(slots=True)
class GangGpus:
    """A gang that was granted, its GPUs, and when its leases end.

    `renewed` are GPUs that its app holds, `missing` how many it lacks besides by machine, `others` those it got for
    them.
    """

    app_id: str
    slot: int | None
    renewed: list[GpuId]
    missing: Mapping[str, int]
    others: Sequence[GpuId] = ()
    expires_at_s: float = 0.0


def slots_first(gang: GangGpus) -> bool:
    """Gangs within a slot come first, whosever they are: the others take any GPU, and must leave those theirs."""
    return gang.slot is None


def gpus_of_gangs(
    cluster: Cluster,
    grants: Mapping[str, Sequence[PlacedGang]],
    up: Mapping[GpuId, Lease],
    free: Mapping[str, int],
) -> list[GangGpus]:
    """The GPUs of every gang, apps in order, those that it renews first.

    Args:
        cluster: The cluster.
        grants: Gangs by app.
        up: Leases up for renewal by GPU.
        free: Free GPUs by machine, as numbers (`gpu_choice`).

    Raises:
        InvariantError: More is granted on a machine than there is.
    """
    mine = _by_holder(up)
    found: list[GangGpus] = []
    for app_id in sorted(grants):
        own = mine.get(app_id, {})
        found += [_renewing(cluster, app_id, gang, own) for gang in sorted(grants[app_id], key=_order_of_gangs)]
    lacking = [gang for gang in found if gang.missing]
    if lacking:
        _give_others(cluster, sorted(lacking, key=slots_first), up, free, mine.values())
    return found


def _give_others(
    cluster: Cluster,
    lacking: Iterable[GangGpus],
    up: Iterable[GpuId],
    free: Mapping[str, int],
    left: Iterable[Mapping[str, int]],
) -> None:
    """Gangs that lack GPUs get free ones, and those that are up and that nobody renewed, `left` by machine."""
    late, available = masks_of(up), dict(free)
    for mine in left:
        for machine_id, gpus in mine.items():
            available[machine_id] = available.get(machine_id, 0) | gpus
    for gang in lacking:
        gang.others = others = []
        for machine_id, count in gang.missing.items():
            there = available.get(machine_id, 0)
            if there.bit_count() < count:
                raise InvariantError("more GPUs are granted than were offered", value=(gang.app_id, machine_id, count))
            slots, all_here = cluster.machine(machine_id).slots, cluster.gpus_of(machine_id)
            indices = choose_gpus(slots, there, late.get(machine_id, 0), count, gang.slot)
            available[machine_id] = there & ~mask_of(indices)
            others += [all_here[index] for index in indices]


def _order_of_gangs(gang: PlacedGang) -> tuple[bool, bool, PlacedGang]:
    return not gang.pinned, gang.slot is None, gang


def _renewing(cluster: Cluster, app_id: str, gang: PlacedGang, own: dict[str, int]) -> GangGpus:
    """What a gang renews of its app's `own` GPUs that are up, which are taken out of them, and what it lacks."""
    renewed: list[GpuId] = []
    missing: dict[str, int] = {}
    for machine_id, count in gang.gpus.counts:
        here = own.get(machine_id)
        if here:
            indices, own[machine_id] = choose_own_gpus(cluster.machine(machine_id).slots, here, count, gang.slot)
            gpus = cluster.gpus_of(machine_id)
            renewed += [gpus[index] for index in indices]
            count -= len(indices)
        if count:
            missing[machine_id] = count
    return GangGpus(app_id, gang.slot, renewed, missing)


def _by_holder(up: Mapping[GpuId, Lease]) -> dict[str, dict[str, int]]:
    """GPUs up for renewal by app and machine."""
    mine: dict[str, dict[str, int]] = {}
    for gpu, lease in up.items():
        here = mine.setdefault(lease.app_id, {})
        here[gpu.machine_id] = here.get(gpu.machine_id, 0) | 1 << gpu.index
    return mine
