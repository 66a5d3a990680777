"""Bids on clusters of several device types: an app bids on each type by itself, and its rows name the type.

A gang has one device type, so a bundle of new gangs is valued on one type at a time. On that type the app is valued as
if the cluster had only that type: `app_on_type` states its jobs' work and speeds in units of their speed there. But
gangs that the app keeps on other types count at their own speed, and do not grow.

Example: a job with 600 s of work has speed 1 on k80 and 3 on v100. Its rows on k80 see 600 s of work, those on v100 see
200 s. One v100 is worth as much as three k80.

Our choice: a row has gangs of one type only. So an app with renewable gangs on two types wins at most those of one by
its bid. The others it renews as leftovers, before apps that do not hold them (`share_leftovers`).
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from am.agent.model.demands import usable_gpus
from am.agent.model.views import AppView, ClusterView, HeldGang, JobView, TypeView
from themis.bids import Bid, Offer
from themis.cluster import Allocation


def types_on_offer(app: AppView, offer: Offer, cluster: ClusterView) -> list[TypeView]:
    """The device types with free GPUs on which all jobs of the app can run, in the cluster's order."""
    free = {cluster.device_of.get(machine_id, "") for machine_id, _ in offer.free}
    jobs = [*app.jobs, *([app.reference] if app.reference is not None else [])]
    return [
        each for each in cluster.types if each.device in free and all(job.speeds.on(each.device) > 0.0 for job in jobs)
    ]


def app_on_type(app: AppView, device: str) -> AppView:
    """The app in units of its jobs' speed on one device type, where all of them can run."""
    held = {gang.job_id: gang for gang in app.held if gang.device != device}
    return replace(
        app,
        jobs=tuple([_job_on_type(job, device, held.get(job.job_id)) for job in app.jobs]),
        reference=None if app.reference is None else _job_on_type(app.reference, device, None),
        work_total_gpu_s=app.work_total_gpu_s / app.median_job.speeds.on(device),
        held=tuple([replace(gang, device="") if gang.device == device else gang for gang in app.held]),
    )


def _job_on_type(job: JobView, device: str, elsewhere: HeldGang | None) -> JobView:
    """A job on one device type; one that keeps a gang on another type cannot grow."""
    shape = job.shape
    if elsewhere is not None:
        kept = elsewhere.gpus - elsewhere.renewable_gpus if elsewhere.renewable_gpus else elsewhere.gpus
        if tasks := usable_gpus(shape, kept) // shape.gpus_per_task:
            shape = replace(shape, tasks=tasks)
    return replace(job.on_type(device), shape=shape)


def offer_on_type(offer: Offer, device: str, cluster: ClusterView) -> Offer:
    """The part of an offer on machines of one device type."""
    free = Allocation(tuple([entry for entry in offer.free.counts if cluster.device_of.get(entry[0]) == device]))
    return replace(
        offer,
        free=free,
        slots={machine_id: offer.slots[machine_id] for machine_id, _ in free if machine_id in offer.slots},
    )


def merge_bids(bids: Sequence[tuple[str, Bid]]) -> Bid:
    """The bids on each type as one bid, whose gangs name their type. An app wins at most one row of it.

    Each bid has at most `bidding.ROW_CAP` rows, so the whole has at most that many for each type.
    """
    _, first = bids[0]
    rows = [
        replace(row, gangs=tuple([replace(gang, device=device) for gang in row.gangs])) if row.gangs else row
        for device, bid in bids
        for row in bid.rows
    ]
    return replace(
        first,
        empty_value=max([bid.empty_value for _, bid in bids]),
        rows=tuple(rows),
        rows_dropped=sum(bid.rows_dropped for _, bid in bids),
    )
