"""What users see of each other's apps: that an app exists, how it fares, and what it holds.

Owners and administrators see all of it. Other users see neither specification, environment, jobs, losses, paths nor
any text that the app's programs may have written.
"""

from __future__ import annotations

from dataclasses import replace as replace_record
from typing import Any

from msgspec.structs import replace

from rm_plugin.service.entries import AppEntry
from rm_plugin.service.manager import ResourceManager
from rm_plugin.service.store import StoredEvent
from themis.apps import ProgramSpec, TunerSpec
from themis.errors import InputError
from themis.events import EMITTERS, Emitter
from themis.identity import Identity
from themis.wire import themis_pb2 as pb

_PRIVATE_FIELDS = (
    *("diagnostics", "best", "best_checkpoint", "page_url", "engine_id", "archive", "checkpoint_uri", "jobs"),
    *("spec", "folder", "explanation", "waiting", "waits_for", "estimate"),
)
_PRIVATE_DETAIL = frozenset({"diagnostics", "reason"})


def visible_status(status: pb.AppStatus, identity: Identity) -> pb.AppStatus:
    """Return the status of an app as a caller may see it. Clears the private fields of `status` itself."""
    if not identity.controls(status.user):
        for field in _PRIVATE_FIELDS:
            status.ClearField(field)
    return status


def visible_entry(entry: AppEntry, identity: Identity | None, *, whole: bool = True) -> AppEntry:
    """Return an app as a reader of the pages may see it: the entry itself, or a copy without the private parts.

    An `identity` of None stands for a reader whom the ResourceManager does not know. Without `whole` the copy is for a
    list, and keeps the jobs.
    """
    if identity is not None and identity.controls(entry.spec.user):
        return entry
    texts: dict[str, Any] = dict.fromkeys(("diagnostics", "page_url", "engine_id", "archive"), "")
    if not whole:
        return replace_record(entry, session=None, **texts)
    spec = entry.spec
    heartbeat, finish = pb.Heartbeat(), pb.Finish()
    heartbeat.CopyFrom(entry.heartbeat)
    finish.CopyFrom(entry.finish)
    for message in (heartbeat, finish):
        bare = [
            pb.JobStatus(job_id=job.job_id, state=job.state, gpus=job.gpus, device=job.device) for job in message.jobs
        ]
        for field in ("jobs", "best", "loss_curves"):
            message.ClearField(field)
        message.jobs.extend(bare)
    finish.best_checkpoint = finish.diagnostics = heartbeat.checkpoint_uri = ""
    return replace_record(
        entry,
        spec=replace(
            spec,
            program=ProgramSpec(name=spec.program.name or "command"),
            tuner=TunerSpec(name=spec.tuner.name),
            jobs=tuple(replace(job, hyper_parameters={}) for job in spec.jobs),
            checkpoint_uri="",
        ),
        heartbeat=heartbeat,
        finish=finish,
        _curves={},
        session=None,
        **texts,
    )


async def visible_event(manager: ResourceManager, event: StoredEvent, identity: Identity | None) -> StoredEvent | None:
    """Return an event as a caller may see it, or None for an event of another user's app master.

    For `identity` see `visible_entry`.

    Raises:
        StoreError: The store, which has the archived apps, cannot be read.
    """
    if not event.app_id or (identity is not None and await _controls(manager, event.app_id, identity)):
        return event
    if EMITTERS.get(event.kind) is not Emitter.RESOURCE_MANAGER:
        return None
    return replace(event, detail={key: value for key, value in event.detail.items() if key not in _PRIVATE_DETAIL})


async def _controls(manager: ResourceManager, app_id: str, identity: Identity) -> bool:
    if identity.is_admin:
        return True
    try:
        entry = await manager.find(app_id)
    except InputError:
        # The app's row cannot be read: its owner is not known.
        return False
    # If no app has this id any more, it may be the name of another user's app.
    return entry.app_id == app_id and identity.controls(entry.spec.user)
