"""What users see of each other's apps: that an app exists, how it fares, and what it holds.

Owners and administrators, those of its queue too, see all of it. Other users see neither specification, environment,
jobs, losses, paths nor any text that the app's programs may have written. The values of environment variables may be
secrets: every answer hides them but the one to a caller who asks for them.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from rm_plugin.service.entries import AppEntry
from rm_plugin.service.manager import ResourceManager
from rm_plugin.service.store import StoredEvent
from themis.apps import AppSpec, JobSpec, ProgramSpec, TunerSpec
from themis.config.app_limits import HIDDEN
from themis.events import EMITTERS, Emitter
from themis.identity import Identity
from themis.queues import AppOwner
from themis.wire import themis_pb2 as pb

# What is not in these lists is private, so that a new field is private until it is added here.
_PUBLIC_STATUS = frozenset(
    (
        *("app_id", "name", "user", "queue", "state", "tuner", "program", "replay", "device_noun", "hosted"),
        *("submitted_at_s", "started_at_s", "finished_at_s", "attempts", "progress", "phase", "phases"),
        *("rho", "final_rho", "gpus", "gpus_unmet", "gpu_time_s", "leases", "app_page_url"),
        *("jobs_total", "demand_max_gpus"),
    )
)
_PUBLIC_DETAIL = frozenset(
    (
        *("name", "user", "by", "tuner", "program", "replay", "jobs", "demand_max_gpus", "state", "attempt", "pid"),
        *("action", "of", "lease_id", "gpu", "expires_at_s", "job_id", "round_id", "reserved"),
    )
)


def visible_status(
    status: pb.AppStatus, owner: AppOwner, identity: Identity | None, *, environment: bool = False
) -> pb.AppStatus:
    """Return the status of an app as a caller may see it. Clears the private fields of `status` itself.

    An `identity` of None stands for a reader of the pages whom the ResourceManager does not know.
    Without `environment` a specification in it has the names of environment variables only.
    """
    if not environment:
        variables = status.spec.program.environment if status.HasField("spec") else {}
        # A map of a message skips names if it is changed while it is walked.
        for name in list(variables):
            variables[name] = HIDDEN
    if identity is None or not identity.controls(owner):
        for field, _value in status.ListFields():
            if field.name not in _PUBLIC_STATUS:
                status.ClearField(field.name)
    return status


def visible_entry(entry: AppEntry, identity: Identity | None, *, whole: bool = True) -> AppEntry:
    """Return an app as a reader of the pages may see it: the entry itself, or a new one with the public parts.

    For `identity` see `visible_status`. Without `whole` the entry is for a list, which shows only public parts of the
    specification, and has the app's own one.
    """
    if identity is not None and identity.controls(entry.owner):
        return entry
    return AppEntry(
        app_id=entry.app_id,
        spec=_public_spec(entry.spec) if whole else entry.spec,
        submitted_at_s=entry.submitted_at_s,
        state=entry.state,
        attempt=entry.attempt,
        started_at_s=entry.started_at_s,
        finished_at_s=entry.finished_at_s,
        gpu_time_s=entry.gpu_time_s,
        paused_at_s=entry.paused_at_s,
        paused_s=entry.paused_s,
        waits_since_s=entry.waits_since_s,
        unadmitted_s=entry.unadmitted_s,
        heartbeat=_public_heartbeat(entry.heartbeat),
        finish=_public_finish(entry.finish),
    )


def _public_spec(spec: AppSpec) -> AppSpec:
    return AppSpec(
        name=spec.name,
        user=spec.user,
        queue=spec.queue,
        tuner=TunerSpec(name=spec.tuner.name),
        program=ProgramSpec(name=spec.program.name or "command"),
        jobs=tuple(
            JobSpec(
                job_id=job.job_id,
                shape=job.shape,
                iterations_total=job.iterations_total,
                speed_by_device=job.speed_by_device,
            )
            for job in spec.jobs
        ),
        replay=spec.replay,
    )


def _public_heartbeat(heartbeat: pb.Heartbeat) -> pb.Heartbeat:
    return pb.Heartbeat(
        progress=heartbeat.progress,
        phase=heartbeat.phase,
        phases=heartbeat.phases,
        unmet_gpus=heartbeat.unmet_gpus,
        declaration=heartbeat.declaration if heartbeat.HasField("declaration") else None,
        phases_left=heartbeat.phases_left,
        jobs=_public_jobs(heartbeat.jobs),
        provisional=heartbeat.provisional,
    )


def _public_finish(finish: pb.Finish) -> pb.Finish:
    return pb.Finish(
        state=finish.state,
        rho=finish.rho,
        declaration=finish.declaration if finish.HasField("declaration") else None,
        jobs=_public_jobs(finish.jobs),
    )


def _public_jobs(jobs: Sequence[pb.JobStatus]) -> list[pb.JobStatus]:
    return [pb.JobStatus(job_id=job.job_id, state=job.state, gpus=job.gpus, device=job.device) for job in jobs]


async def visible_events(
    manager: ResourceManager, events: Sequence[StoredEvent], identity: Identity | None
) -> list[StoredEvent]:
    """Return events as a caller may see them, without those of other users' app masters.

    For `identity` see `visible_status`. The owner of an app is looked up once, however many events it has.

    Raises:
        StoreError: The store, which has the archived apps, cannot be read.
    """
    app_ids = {event.app_id for event in events}
    whole = {app_id for app_id in app_ids if not app_id or await _controls(manager, app_id, identity)}
    shown = []
    for event in events:
        if event.app_id in whole:
            shown.append(event)
        elif EMITTERS.get(event.kind) is Emitter.RESOURCE_MANAGER:
            public = {key: value for key, value in event.detail.items() if key in _PUBLIC_DETAIL}
            shown.append(replace(event, detail=public))
    return shown


async def _controls(manager: ResourceManager, app_id: str, identity: Identity | None) -> bool:
    if identity is None or identity.is_admin:
        return identity is not None
    entry = manager.entries.find(app_id) or await manager.recorder.archived_app(app_id)
    # If no app has this id any more, it may be the name of another user's app. A row that cannot be read has no owner.
    return entry is not None and entry.app_id == app_id and identity.controls(entry.owner)
