"""ClientService: the gRPC methods for the submarine command and other clients."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

import grpc
from msgspec.structs import replace

from rm_plugin.service.admission import types_that_run
from rm_plugin.service.app_pages import mark_of
from rm_plugin.service.authentication import caller, check_caller
from rm_plugin.service.entries import AppEntry
from rm_plugin.service.logs import LogFollower
from rm_plugin.service.manager import ResourceManager
from rm_plugin.service.message_checks import check_reference, check_states
from rm_plugin.service.node_status import node_statuses
from rm_plugin.service.refusals import refuse
from rm_plugin.service.status import app_status, waiting_message
from rm_plugin.service.store import StoredEvent, app_number
from rm_plugin.service.store_json import to_json
from rm_plugin.service.visibility import visible_events, visible_status
from themis.apps import AppSpec
from themis.config.tuner_settings import gpus_at_once
from themis.errors import NotAllowedError, ThemisError
from themis.wire import themis_pb2 as pb
from themis.wire import themis_pb2_grpc as rpc
from themis.wire.values import app_from_message

if TYPE_CHECKING:
    Context = grpc.aio.ServicerContext[Any, Any]

_EVENTS_A_READ = 500
_LOG_POLL_S = 0.3
_LIST_BYTES = 4 * 1024 * 1024
"""A page of apps ends at this size; one app may be larger."""


class ClientService(rpc.ClientServiceServicer):  # type: ignore[misc]
    """Answers clients. Errors become gRPC statuses in one place, `refuse`."""

    def __init__(self, manager: ResourceManager, policy: str) -> None:
        self._manager = manager
        self._policy = policy

    async def Submit(self, request: pb.SubmitRequest, context: Context) -> pb.SubmitReply:
        """Accept an app."""
        try:
            spec = _owned(app_from_message(request.spec))
            entry = await self._manager.submit(spec, request.code, by=caller().user)
        except (ThemisError, ValueError) as error:
            await refuse(context, error)
            raise
        runs_on = types_that_run(entry.spec, self._manager.arbiter.cluster)
        page_url = self._manager.page_of(entry.app_id)
        return pb.SubmitReply(app_id=entry.app_id, runs_on=runs_on, page_url=page_url)

    async def Validate(self, request: pb.SubmitRequest, context: Context) -> pb.ValidateReply:
        """Check an app against the cluster without accepting it."""
        try:
            spec = _owned(app_from_message(request.spec))
            await self._manager.check(spec)
        except (ThemisError, ValueError) as error:
            await refuse(context, error)
            raise
        cluster = self._manager.arbiter.cluster
        noun = f"{cluster.device_noun}s"
        summary = (
            f"{len(spec.jobs)} jobs, at most {gpus_at_once(spec)} {noun}, fits {cluster.name} ({cluster.gpus} {noun})"
        )
        if runs_on := types_that_run(spec, cluster):
            summary += f"; {runs_on}"
        return pb.ValidateReply(summary=summary)

    async def List(self, request: pb.ListRequest, context: Context) -> pb.ListReply:
        """Return a page of all apps, or of those in the given states, without leases and specifications."""
        try:
            wanted = check_states(request.states)
            page = await self._manager.page_of_apps(states=wanted, after=request.after, limit=request.limit)
        except ThemisError as error:
            await refuse(context, error)
            raise
        reply = pb.ListReply(
            next=page.next_mark, total=self._manager.entries.count(wanted), now_s=self._manager.clock.now_s()
        )
        reasons = self._manager.estimates.waiting_of(page.entries) if request.reasons else {}
        size = 0
        for index, entry in enumerate(page.entries):
            status = app_status(self._manager, entry, whole=False)
            if entry.app_id in reasons:
                status.waiting.CopyFrom(waiting_message(reasons[entry.app_id]))
            status = visible_status(status, entry.owner, caller())
            size += status.ByteSize()
            if index and size > _LIST_BYTES:
                reply.next = mark_of(page.entries[index - 1])
                break
            reply.apps.append(status)
        if not request.limit:
            reply.apps.sort(key=lambda app: app_number(app.app_id))
        return reply

    async def Show(self, request: pb.ShowRequest, context: Context) -> pb.AppStatus:
        """Return one app with its leases and specification."""
        try:
            entry = await self._manager.find(request.app_id, caller().user)
            if request.environment and caller().controls(entry.owner):
                await self._manager.note_read(entry, caller(), "environment_read")
            status = app_status(self._manager, entry, whole=True)
            return visible_status(status, entry.owner, caller(), environment=request.environment)
        except ThemisError as error:
            await refuse(context, error)
            raise

    async def Usage(self, request: pb.UsageRequest, context: Context) -> pb.UsageReply:
        """Return GPU time by month, user, queue and device type, as far as the caller may see it."""
        try:
            usage = self._manager.usage(request.month, caller())
        except ThemisError as error:
            await refuse(context, error)
            raise
        rows = [
            pb.UsageRow(month=month, user=user, queue=queue, device=device, gpu_s=gpu_s)
            for (month, user, queue, device), gpu_s in usage.items()
        ]
        return pb.UsageReply(rows=rows)

    async def Kill(self, request: pb.KillRequest, context: Context) -> pb.AppStatus:
        """Stop an app."""
        try:
            entry = await self._controlled(request.app_id)
            await self._manager.kill(entry.app_id, request.reason, by=caller().user)
        except ThemisError as error:
            await refuse(context, error)
            raise
        return visible_status(app_status(self._manager, entry, whole=False), entry.owner, caller())

    async def Pause(self, request: pb.PauseRequest, context: Context) -> pb.AppStatus:
        """Pause an app."""
        try:
            entry = await self._controlled(request.app_id)
            await self._manager.pause(entry.app_id, request.reason, by=caller().user)
        except ThemisError as error:
            await refuse(context, error)
            raise
        return visible_status(app_status(self._manager, entry, whole=False), entry.owner, caller())

    async def Resume(self, request: pb.ResumeRequest, context: Context) -> pb.AppStatus:
        """Resume a paused app."""
        try:
            entry = await self._controlled(request.app_id)
            await self._manager.resume(entry.app_id, by=caller().user)
        except ThemisError as error:
            await refuse(context, error)
            raise
        return visible_status(app_status(self._manager, entry, whole=False), entry.owner, caller())

    async def _controlled(self, reference: str) -> AppEntry:
        """Return the app of an id or name. Raises NotAllowedError unless it is the caller's to control."""
        entry = await self._manager.find(reference, caller().user)
        caller().check_controls(entry.app_id, entry.owner)
        return entry

    async def Watch(self, request: pb.WatchRequest, context: Context) -> AsyncIterator[pb.Event]:
        """Stream events after a sequence number.

        With `follow` the stream ends when the app has ended. For all apps it never ends. Once the caller's token is
        revoked, there are no further events. Events of an app whose owner is another user come as `visible_events`
        shows them.
        """
        identity = caller()
        entry = None
        if request.app_id:
            try:
                entry = await self._manager.find(request.app_id, caller().user)
            except ThemisError as error:
                await refuse(context, error)
        app_id = entry.app_id if entry is not None else ""
        after = request.after_sequence
        recorder = self._manager.recorder
        while True:
            ended = entry is not None and entry.ended
            news = asyncio.ensure_future(recorder.news())
            try:
                check_caller()
                events = await recorder.read_events(after, app_id, _EVENTS_A_READ)
                shown = await visible_events(self._manager, events, identity)
            except ThemisError as error:
                news.cancel()
                await refuse(context, error)
                raise
            for event in shown:
                yield _event_message(event)
            if events:
                after = events[-1].sequence
            else:
                if not request.follow or ended:
                    news.cancel()
                    return
                await news
            news.cancel()

    async def Logs(self, request: pb.LogsRequest, context: Context) -> AsyncIterator[pb.LogChunk]:
        """Stream the logs of an app's jobs, or of one job. The source `am` is the app master's log.

        With `tail_lines` the stream begins with the last lines of each log. It ends when the caller's token is revoked.
        """
        try:
            entry = await self._manager.find(request.app_id, caller().user)
            await self._check_may_read_logs(entry)
            job_id = check_reference(request.job_id, "job")
            folder = await self._manager.fetch_logs(entry)
            # In threads, since a disk may be slow and a log long.
            logs = await asyncio.to_thread(LogFollower, folder, entry.shapes.keys(), job_id, request.tail_lines)
        except ThemisError as error:
            await refuse(context, error)
            raise
        while True:
            ended = entry.ended
            last = ended or not request.follow
            while chunks := await asyncio.to_thread(logs.read, to_the_end=last):
                for chunk in chunks:
                    yield chunk
            if last:
                return
            await asyncio.sleep(_LOG_POLL_S)
            try:
                check_caller()
            except ThemisError as error:
                await refuse(context, error)
            await self._manager.fetch_logs(entry)

    async def _check_may_read_logs(self, entry: AppEntry) -> None:
        """Raise NotAllowedError for other users. Logs that an administrator reads are noted in the event log."""
        caller().check_controls(entry.app_id, entry.owner)
        await self._manager.note_read(entry, caller(), "logs_read")

    async def ClusterInfo(
        self,
        request: pb.ClusterRequest,
        context: Context,
    ) -> pb.ClusterStatus:
        """Return the cluster, how many of its GPUs are in use, and who calls."""
        manager = self._manager
        return pb.ClusterStatus(
            cluster=manager.live_cluster.cluster_message(),
            policy=self._policy,
            gpus=manager.arbiter.cluster.gpus,
            gpus_leased=len(manager.arbiter.table.live),
            active_apps=manager.arbiter.active_count,
            rounds=manager.rounds.rounds,
            time_scale=manager.settings.time_scale,
            lease_s=manager.settings.lease.duration_s,
            now_s=manager.clock.now_s(),
            nodes=node_statuses(manager),
            user=caller().user,
            is_admin=caller().is_admin,
        )


def _owned(spec: AppSpec) -> AppSpec:
    """Return the specification with its owner: the caller, or the user whom an administrator names.

    Raises:
        NotAllowedError: The caller names another user.
    """
    identity = caller()
    if spec.user and spec.user != identity.user and not identity.is_admin:
        remedy = f"leave `user` out of the group file; you are {identity.user}"
        raise NotAllowedError("you may not submit for another user", value=spec.user, remedy=remedy)
    return spec if spec.user else replace(spec, user=identity.user)


def _event_message(event: StoredEvent) -> pb.Event:
    return pb.Event(
        sequence=event.sequence,
        time_s=event.time_s,
        kind=event.kind,
        app_id=event.app_id,
        detail=to_json(event.detail),
    )
