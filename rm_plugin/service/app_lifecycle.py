"""What apps go through: they arrive, wait for admission, are paused and resumed, and end."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import msgspec

from rm_plugin.arbiter.core import Arbiter
from rm_plugin.service.am_watch import AmWatch
from rm_plugin.service.app_quotas import AppQuotas
from rm_plugin.service.changes import Change, Changes
from rm_plugin.service.entries import AppEntries, AppEntry
from rm_plugin.service.hosted_apps import HostedApps
from rm_plugin.service.launches import Launches
from rm_plugin.service.live_cluster import LiveCluster
from rm_plugin.service.starts import Starts
from themis.clock import Clock
from themis.errors import InputError
from themis.lifecycle import APP_LIFECYCLE, AppState, JobState
from themis.wire import themis_pb2 as pb
from themis.wire.values import declaration_from_message


class AppLifecycle:
    """Lets apps take part in the cluster, and takes out those that end or are paused. It starts and kills nothing.

    Args:
        arbiter: Holds the leases.
        entries: The apps.
        changes: Writes every change before it takes effect.
        live_cluster: Notifies other apps of the leases that end.
        quotas: Which apps wait until others end.
        hosted: The apps for which the agent host answers.
        watch: The app masters of the other active apps.
        launches: The launches of app masters.
        starts: The turns for them.
        clock: The present time.
        note_end: Adds to the change in which an app ends.
        on_ended: Called after an app has ended.
    """

    def __init__(
        self,
        *,
        arbiter: Arbiter,
        entries: AppEntries,
        changes: Changes,
        live_cluster: LiveCluster,
        quotas: AppQuotas,
        hosted: HostedApps,
        watch: AmWatch,
        launches: Launches,
        starts: Starts,
        clock: Clock,
        note_end: Callable[[Change, AppEntry], None],
        on_ended: Callable[[AppEntry], object],
    ) -> None:
        self._arbiter = arbiter
        self._entries = entries
        self._changes = changes
        self._live_cluster = live_cluster
        self._quotas = quotas
        self._hosted = hosted
        self._watch = watch
        self._launches = launches
        self._starts = starts
        self._clock = clock
        self._note_end = note_end
        self._on_ended = on_ended

    def arrive(self, entry: AppEntry) -> None:
        """Let a new or resumed app share the cluster, unless it waits for admission.

        An app that waits does not take part in rounds, and has no part of its user's share. So fairness counts from its
        admission.
        """
        if entry.waits_since_s is not None:
            self._quotas.wait(entry)
            return
        self._quotas.enter(entry)
        self._watch.add(entry)
        entry.launch_wait = ""
        entry.last_seen_s = self._clock.now_s()
        self._arbiter.add_app(
            entry.app_id,
            now_s=entry.last_seen_s,
            attained_gpu_s=entry.gpu_time_s,
            owner=entry.owner,
            resources=entry.spec.resources,
            arrived_at_s=entry.arrived_at_s,
        )
        self._arbiter.set_silent(entry.app_id, entry.attempt > 0)

    async def admit_due(self) -> list[AppEntry]:
        """Admit the apps that are within all limits now, those first that have waited longest. Returns them."""

        def admit(change: Change) -> list[AppEntry]:
            due = self._quotas.due()
            for entry in due:
                change.put(entry, **_admitted(entry, change.now_s))
                change.then(partial(self.arrive, entry))
                change.then(partial(self._entries.note_admission, entry))
            return due

        return await self._changes.make_surely(admit)

    def end(
        self, change: Change, entry: AppEntry, state: AppState, diagnostics: str, finish: pb.Finish | None = None
    ) -> None:
        """End an app and its leases, within a change. `finish` is the last message of its app master, if one came."""
        declared = entry.declaration
        if finish is not None:
            change.set(entry, finish=finish)
            declared = finish.declaration if finish.HasField("declaration") else declared
        self._leave(change, entry, state, diagnostics, "the app ended", **_declared(entry, declared))
        change.put(entry, finished_at_s=change.now_s)
        self._note_end(change, entry)
        change.then(lambda: self._on_ended(entry))

    async def end_surely(self, entry: AppEntry, state: AppState, diagnostics: str) -> None:
        """End an app of which nothing runs any more, unless it has ended; waits for the store."""

        def end(change: Change) -> None:
            if not entry.ended:
                self.end(change, entry, state, diagnostics)

        await self._changes.make_surely(end)

    def pause(self, change: Change, entry: AppEntry) -> None:
        """Pause an app and end its leases, within a change. The attempt that ends for it is no failure."""
        self._leave(change, entry, AppState.PAUSED, entry.pause_reason, "the app was paused")
        change.put(
            entry,
            # Its end may be heard of only after a resume.
            lost_attempt=entry.attempt,
            pause_reason="",
            paused_at_s=change.now_s,
            attempt_losses=entry.attempt_losses.excused_up_to(entry.attempt),
            page_url="",
            resting_view=b"",
            heartbeat=_at_rest(entry.heartbeat),
        )

    async def pause_surely(self, entry: AppEntry) -> None:
        """Pause an app of which nothing runs any more, unless it has ended or is paused; waits for the store."""

        def pause(change: Change) -> None:
            if is_pausing(entry, entry.lost_attempt):
                self.pause(change, entry)

        await self._changes.make_surely(pause)

    async def resume(self, entry: AppEntry, by: str) -> None:
        """Let a paused app take part again.

        Raises:
            InputError: The app is not paused.
            StoreError: The change cannot be written; the app stays paused.
        """

        def go_on(change: Change) -> None:
            if entry.state is not AppState.PAUSED or entry.paused_at_s is None:
                raise InputError(f"app {entry.app_id} is not paused", value=entry.state.value)
            paused_s = entry.paused_s + max(0.0, change.now_s - entry.paused_at_s)
            state = APP_LIFECYCLE.check(entry.state, AppState.ACCEPTED, entry.app_id)
            change.event("app_resumed", app_id=entry.app_id, detail={"user": by or entry.spec.user})
            change.put(
                entry,
                state=state,
                paused_s=paused_s,
                paused_at_s=None,
                waits_since_s=change.now_s if self._quotas.reason(entry) else None,
                diagnostics="",
                last_seen_s=change.now_s,
            )
            change.then(lambda: self.arrive(entry))

        await self._changes.make(go_on)

    def _leave(
        self, change: Change, entry: AppEntry, state: AppState, diagnostics: str, reason: str, **detail: object
    ) -> None:
        """Turn an app to a state in which nothing of it runs, and end its leases. `detail` is added to the event."""
        now_s = change.now_s
        if entry.is_admitted:
            # Read before the leases end: their time counts up to now.
            change.set(entry, gpu_time_s=self._arbiter.attained_gpu_s(entry.app_id, now_s))
        elif entry.is_active:
            change.set(entry, **_admitted(entry, now_s))
        leases = [lease.lease_id for lease in self._arbiter.table.of_app(entry.app_id)]
        ended = self._arbiter.release(leases, now_s=now_s, reason=reason)
        state = APP_LIFECYCLE.check(entry.state, state, entry.app_id)
        detail = {"state": state.value, "diagnostics": diagnostics, **detail}
        change.event("app_state", app_id=entry.app_id, detail=detail)
        change.put(entry, state=state, diagnostics=diagnostics)
        change.then(lambda: self._forget(entry, reason, is_paused=state is AppState.PAUSED))
        self._live_cluster.leases_ended(change, ended, but_for=entry.app_id)

    def _forget(self, entry: AppEntry, reason: str, *, is_paused: bool) -> None:
        self._hosted.discard(entry.app_id)
        self._watch.discard(entry.app_id)
        self._arbiter.end_app(entry.app_id, now_s=self._clock.now_s(), reason=reason, is_paused=is_paused)
        self._launches.forget(entry.app_id)
        self._quotas.leave(entry)
        self._starts.done(entry.app_id)


def _admitted(entry: AppEntry, now_s: float) -> dict[str, float | None]:
    """The attributes of an app whose wait for admission is over."""
    waited_s = 0.0 if entry.waits_since_s is None else max(0.0, now_s - entry.waits_since_s)
    return {"waits_since_s": None, "unadmitted_s": entry.unadmitted_s + waited_s}


def _declared(entry: AppEntry, declaration: pb.Declaration) -> dict[str, object]:
    """Return the part of the event of an app's end from which its rho follows: empty if it never declared itself."""
    if not declaration.phases:
        return {}
    declared = msgspec.to_builtins(declaration_from_message(declaration))
    return {"arrived_at_s": entry.arrived_at_s, "declaration": declared}


def is_pausing(entry: AppEntry, lost_attempt: int) -> bool:
    """Whether an app is still to end for a pause, and not for a kill.

    The pause is over, and another one may be wanted, once the app has lost another attempt than this one. The engine
    may replace the app master before.
    """
    same = entry.lost_attempt == lost_attempt
    return entry.is_active and same and bool(entry.pause_reason) and not entry.kill_reason


def _at_rest(heartbeat: pb.Heartbeat) -> pb.Heartbeat:
    """Return the heartbeat of an app whose jobs were stopped: they hold no GPU and want none."""
    still = pb.Heartbeat()
    still.CopyFrom(heartbeat)
    still.unmet_gpus = 0
    for job in still.jobs:
        job.gpus = 0
        if job.state in (JobState.STARTING, JobState.RUNNING, JobState.CHECKPOINTING):
            job.state = JobState.WAITING.value
    return still
