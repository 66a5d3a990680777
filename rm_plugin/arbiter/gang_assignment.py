"""Assign GPUs to the gangs of a round: first the app's own renewable GPUs, then free ones, then those others lose."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from themis.bids import PlacedGang
from themis.cluster import Cluster, GpuId
from themis.errors import InvariantError
from themis.leases import Lease
from themis.placement.gpu_choice import choose_gpus, choose_own_gpus, mask_of, masks_of


@dataclass(slots=True)
class GangAssignment:
    """The GPUs of a granted gang.

    Attributes:
        app_id: The app.
        slot: The slot that the gang was won in, if any.
        job_id: The job that the gang is bound to, if any.
        at_most_s: How long its leases may last at most; 0 for as long as others.
        renewed: The app's own renewable GPUs that it keeps.
        missing: GPUs that the gang needs in addition, by machine.
        others: The GPUs assigned for `missing`.
        expires_at_s: When the gang's leases end.
    """

    app_id: str
    slot: int | None
    job_id: str
    at_most_s: float
    renewed: list[GpuId]
    missing: Mapping[str, int]
    others: Sequence[GpuId] = ()
    expires_at_s: float = 0.0


def slots_first(gang: GangAssignment) -> bool:
    """Sort key: gangs that were won in a slot choose first, since all others can take any GPU of a machine."""
    return gang.slot is None


def assign_gangs(
    cluster: Cluster,
    grants: Mapping[str, Sequence[PlacedGang]],
    up: Mapping[GpuId, Lease],
    free: Mapping[str, int],
) -> list[GangAssignment]:
    """Assign GPUs to every gang, apps in order of their ids. Renewals come first for all apps.

    Args:
        cluster: The cluster.
        grants: Gangs by app.
        up: Renewable leases by GPU.
        free: Free GPUs by machine, as bit masks (`gpu_choice`).

    Raises:
        InvariantError: More GPUs of a machine are granted than were offered.
    """
    own_by_app: dict[str, dict[str, int]] = {}
    for gpu, lease in up.items():
        own = own_by_app.setdefault(lease.app_id, {})
        own[gpu.machine_id] = own.get(gpu.machine_id, 0) | 1 << gpu.index
    assigned: list[GangAssignment] = []
    for app_id in sorted(grants):
        own = own_by_app.get(app_id, {})
        assigned += [_renew(cluster, app_id, gang, own) for gang in sorted(grants[app_id], key=pinned_first)]
    lacking = [gang for gang in assigned if gang.missing]
    if lacking:
        _assign_others(cluster, sorted(lacking, key=slots_first), up, free, own_by_app.values())
    return assigned


def pinned_first(gang: PlacedGang) -> tuple[bool, bool, PlacedGang]:
    """Sort key: the order in which gangs of an app choose among the GPUs that it can renew."""
    return not gang.pinned, gang.slot is None, gang


def _renew(cluster: Cluster, app_id: str, gang: PlacedGang, own: dict[str, int]) -> GangAssignment:
    """Assign renewable GPUs of its app to a gang and remove them from `own` (masks by machine)."""
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
    return GangAssignment(app_id, gang.slot, gang.job_id, gang.at_most_s, renewed, missing)


def _assign_others(
    cluster: Cluster,
    lacking: Iterable[GangAssignment],
    up: Iterable[GpuId],
    free: Mapping[str, int],
    not_renewed: Iterable[Mapping[str, int]],
) -> None:
    """Assign free GPUs and renewable ones that no holder renewed (masks by machine, one mapping per app)."""
    late, available = masks_of(up), dict(free)
    for own in not_renewed:
        for machine_id, mask in own.items():
            available[machine_id] = available.get(machine_id, 0) | mask
    for gang in lacking:
        gang.others = others = []
        for machine_id, count in gang.missing.items():
            here = available.get(machine_id, 0)
            if here.bit_count() < count:
                raise InvariantError("more GPUs are granted than were offered", value=(gang.app_id, machine_id, count))
            slots, gpus = cluster.machine(machine_id).slots, cluster.gpus_of(machine_id)
            indices = choose_gpus(slots, here, late.get(machine_id, 0), count, gang.slot)
            available[machine_id] = here & ~mask_of(indices)
            others += [gpus[index] for index in indices]
