"""The ResourceManager: what clients ask for, and the parts of the service."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import re
from collections.abc import Awaitable, Callable, Collection, Sequence
from functools import partial
from pathlib import Path

from rm_plugin.arbiter.core import Arbiter
from rm_plugin.engines.port import AppLauncher, HeldLock, NoLock
from rm_plugin.policies.gang_check import check_gang
from rm_plugin.service.admission import check_app
from rm_plugin.service.app_estimates import AppEstimates
from rm_plugin.service.app_masters import LAUNCH_WAIT_S, AppMasters
from rm_plugin.service.app_pages import AppPage, app_page, list_key, mark_key, page_size
from rm_plugin.service.app_quotas import AppQuotas
from rm_plugin.service.archive import FOLDER, NO_ARCHIVE
from rm_plugin.service.changes import Change, Changes
from rm_plugin.service.code_store import CodeStore
from rm_plugin.service.entries import AppEntries, AppEntry
from rm_plugin.service.fluid_fairness import FluidFairness
from rm_plugin.service.hooks import Hooks
from rm_plugin.service.host_process import AgentHost, HostProcess
from rm_plugin.service.hosted_apps import HostedApps
from rm_plugin.service.identities import Identities
from rm_plugin.service.launches import app_folder
from rm_plugin.service.live_cluster import LiveCluster
from rm_plugin.service.log_summary import UsageKey
from rm_plugin.service.message_checks import check_reference
from rm_plugin.service.recorder import Recorder, search_text
from rm_plugin.service.retention import Retention
from rm_plugin.service.round_runner import RoundRunner
from rm_plugin.service.sessions import Sessions
from themis.apps import AppSpec
from themis.clock import Clock
from themis.config.names import check_label
from themis.config.queues_file import load_queues
from themis.config.rm_settings import RmSettings
from themis.config.tuner_settings import gpus_at_once
from themis.errors import InputError, ThemisError, UnknownNameError
from themis.identity import Identity
from themis.leases import LeaseChange
from themis.lifecycle import AppState, shown_state
from themis.queues import AppOwner, Queues

LOG = logging.getLogger("themis.rm")

_FETCH_EVERY_S = 1.0

FetchLogs = Callable[[str, str, Path], Awaitable[None]]
"""Copies an app's logs from any machine into its folder here. Arguments: app id, page of its master, folder.

Raises ThemisError if they cannot be copied now."""


async def there_already(app_id: str, page_url: str, folder: Path) -> None:
    """Do nothing: the app masters write into the folder themselves."""


CheckOwner = Callable[[AppOwner], Awaitable[None]]
"""Raises InputError if the engine can run no app of this user in this queue."""


async def any_owner(owner: AppOwner) -> None:
    """Accept any user and queue, for engines without them."""


class ResourceManager:
    """The methods that the gRPC services call, and the parts of the service. Owns the state of one event loop."""

    def __init__(
        self,
        *,
        settings: RmSettings,
        arbiter: Arbiter,
        entries: AppEntries,
        recorder: Recorder,
        launcher: AppLauncher,
        clock: Clock,
        host: AgentHost | None = None,
        fetch_logs: FetchLogs = there_already,
        check_owner: CheckOwner = any_owner,
        lock: HeldLock | None = None,
    ) -> None:
        self.settings = settings
        self.arbiter = arbiter
        self.entries = entries
        self.recorder = recorder
        self.clock = clock
        self.rounds: RoundRunner
        self.page_url = ""
        self.certificate_expires_at_s = 0.0
        self.identities = Identities(
            admins=settings.admins, anonymous=settings.anonymous, clock=clock, queues=lambda: arbiter.queues
        )
        self.changes = Changes(arbiter, recorder, validate=settings.validate_state)
        self.live_cluster = LiveCluster(
            settings=settings,
            arbiter=arbiter,
            entries=entries,
            changes=self.changes,
            clock=clock,
            rounds=lambda: self.rounds,
        )
        self.quotas = AppQuotas(lambda: arbiter.queues)
        self._fairness = FluidFairness(entries, lambda: arbiter.queues)
        self.estimates = AppEstimates(settings, arbiter, entries, self._fairness, clock, self.waits_for)
        self._codes = CodeStore(settings.files_dir)
        self._fetch_logs = fetch_logs
        self._check_owner = check_owner
        # One search of the archive at a time: others who read the store wait for one at most.
        self._searching = asyncio.Lock()
        self._fetching: dict[str, asyncio.Lock] = {}
        self._fetched: dict[str, tuple[bool, float]] = {}
        self.hooks = Hooks(settings.hooks, self.changes, self.find, lambda: self.page_url)
        self.hosted = HostedApps(
            host or HostProcess(),
            self.live_cluster.registered,
            lambda entry, heartbeat: self.sessions.take_heartbeat(entry, heartbeat),
            lambda entry, problem: self._host_failed(entry, problem),
        )
        self.app_masters = AppMasters(
            settings=settings,
            arbiter=arbiter,
            entries=entries,
            changes=self.changes,
            live_cluster=self.live_cluster,
            hosted=self.hosted,
            launcher=launcher,
            clock=clock,
            quotas=self.quotas,
            on_ended=self.fetch_logs,
            note_end=self.hooks.note_end,
        )
        self.sessions = Sessions(
            settings=settings,
            arbiter=arbiter,
            entries=entries,
            changes=self.changes,
            live_cluster=self.live_cluster,
            app_masters=self.app_masters,
            codes=self._codes,
            clock=clock,
            lock=lock or NoLock(),
            rounds=lambda: self.rounds,
        )
        self.retention = Retention(
            settings=settings,
            entries=entries,
            changes=self.changes,
            recorder=recorder,
            codes=self._codes,
            clock=clock,
            final_rho=self.final_rho,
        )

    # ---- for clients ----

    async def check(self, spec: AppSpec) -> None:
        """Raise InputError if the app is invalid, or could never run on this cluster or under this policy.

        Asks the engine whether it can run apps of this user, and its queue accepts them.
        """
        check_app(spec, self.arbiter.cluster)
        owner = AppOwner(user=spec.user, queue=spec.queue)
        self.arbiter.queues.check_submitter(owner)
        for job in spec.jobs:
            check_gang(self.settings.policy, spec.name, job.job_id, job.shape)
        await self._check_owner(owner)

    def final_rho(self, entry: AppEntry) -> dict[str, float]:
        """Rho of an app that finished, by definition, the definitions that no schedule changes first."""
        return self._fairness.final_rho(entry, self.arbiter.cluster.gpus)

    def page_of(self, app_id: str) -> str:
        """Return the address of an app's page; empty without a page."""
        return f"{self.page_url}apps/{app_id}" if self.page_url else ""

    def waits_for(self, entry: AppEntry) -> str:
        """Return what an app waits for: its start, a round, GPUs that the engine does not grant, or its limits.

        Empty for an app that has ended, or that waits only because the policy serves others first.
        """
        if entry.ended:
            return ""
        if not entry.is_active:
            return f"it is paused; `submarine app resume {entry.app_id}` brings it back"
        now_s = self.clock.now_s()
        wait = "" if entry.wait is None else entry.wait.text(now_s)
        reasons = [entry.launch_wait or wait, entry.grant_limit.shown(now_s), self.live_cluster.unused_reason(entry)]
        if entry.heartbeat.unmet_gpus > 0:
            reasons += self.live_cluster.limits
        return "; ".join(filter(None, reasons))

    async def fetch_logs(self, entry: AppEntry) -> Path:
        """Return the app's folder, with its logs up to about a second ago."""
        folder = self.folder(entry.app_id)
        async with self._fetching.setdefault(entry.app_id, asyncio.Lock()):
            # One fetch at a time: two at once would append the same lines twice.
            state = (entry.ended, self.clock.now_s() // _FETCH_EVERY_S)
            if not (entry.ended and entry.logs_whole) and self._fetched.get(entry.app_id) != state:
                ended = entry.ended
                try:
                    await self._fetch_logs(entry.app_id, "" if ended else entry.page_url, folder)
                    entry.logs_whole = ended
                except ThemisError as error:
                    LOG.warning("no logs of %s, they are fetched when asked for again: %s", entry.app_id, error)
                self._fetched[entry.app_id] = state
        if entry.ended:
            self._fetching.pop(entry.app_id, None)
            self._fetched.pop(entry.app_id, None)
        return folder

    async def note_read(self, entry: AppEntry, reader: Identity, action: str) -> None:
        """Write that an administrator reads what is private of another user's app.

        Args:
            entry: The app.
            reader: Who reads.
            action: `logs_read` or `environment_read`.

        Raises:
            StoreError: It cannot be written.
        """
        if reader.user != entry.spec.user and not self.identities.anonymous:
            detail = {"user": reader.user, "action": action}
            await self.changes.make(lambda change: change.event("user_acted", app_id=entry.app_id, detail=detail))

    async def submit(self, spec: AppSpec, code: bytes = b"", *, by: str = "") -> AppEntry:
        """Accept an app and start its app master.

        Args:
            spec: The app.
            code: The archive of its code; empty if there is none, or if an earlier app had the same.
            by: The user who submits it; empty: the app's own user.

        Raises:
            InputError: The app or its code is invalid.
            StoreError: The app cannot be written; nothing of it remains.
        """
        await self.check(spec)
        self.quotas.check_submission(AppOwner(user=spec.user, queue=spec.queue), self.clock.now_s())

        def accept(change: Change) -> AppEntry:
            now_s = change.now_s
            entry = AppEntry(app_id=self.entries.next_id(), spec=spec, submitted_at_s=now_s, last_seen_s=now_s)
            entry.waits_since_s = now_s if self.quotas.reason(entry) else None
            change.put(entry)
            change.event("app_submitted", app_id=entry.app_id, detail=_submitted_detail(spec, by or spec.user))
            change.then(lambda: self._add(entry))
            return entry

        async with self._codes.keeping(spec.program.code, code):
            entry = await self.changes.make(accept)
        # The app is accepted. The client does not wait for an engine or a store that is unavailable.
        if entry.app_id in self.quotas.waiting:
            return entry
        try:
            await self.app_masters.take_up(entry, timeout_s=LAUNCH_WAIT_S)
        except Exception:
            LOG.exception("the start of %s failed", entry.app_id)
        return entry

    def _add(self, entry: AppEntry) -> None:
        self.entries.add(entry)
        self.app_masters.lifecycle.arrive(entry)

    async def reload_queues(self, *, by: str) -> Queues:
        """Read the file of queues again and apply it: nothing holds before all is checked and written.

        Raises:
            InputError: The settings name no file, or it is not valid.
            StoreError: The change cannot be written.
        """
        path = self.settings.queues
        if path is None:
            remedy = "set `queues` in the settings, and restart once"
            raise InputError("this ResourceManager has no file of queues", remedy=remedy)
        queues = await asyncio.to_thread(load_queues, path)

        def put(change: Change) -> None:
            detail = {"user": by, "action": "queues_reloaded", "queues": list(queues.queues)}
            change.event("user_acted", detail=detail)
            change.then(lambda: self.arbiter.requeue(queues, now_s=self.clock.now_s()))

        await self.changes.make(put)
        self.rounds.trigger("the queues changed")
        return queues

    async def kill(self, app_id: str, reason: str, *, by: str = "") -> AppEntry:
        """Ask an app to stop, and end it by force if it does not. An app that has ended stays as it is.

        `by` is the user who asks; empty: the app's own user.

        Raises:
            InputError: The app is unknown, or the reason cannot be shown.
            StoreError: The request cannot be written; the app goes on.
        """
        entry = await self.find(app_id)
        if reason:
            check_label(reason, "reason", f"kill of {app_id}")

        def want(change: Change) -> None:
            if entry.ended or entry.kill_reason:
                return
            kill_reason = reason or f"killed by {_actor(by, entry.spec.user)}"
            # Written, so that the promise to end the app holds after a restart of this service too.
            detail = {"reason": kill_reason, "user": by or entry.spec.user}
            change.event("app_kill_wanted", app_id=entry.app_id, detail=detail)
            change.put(entry, kill_reason=kill_reason)
            if not entry.is_active:
                # Nothing of a paused app runs.
                self.app_masters.lifecycle.end(change, entry, AppState.KILLED, kill_reason)
                return
            self.live_cluster.leave(change, entry.app_id, kill_reason)
            change.then(lambda: self.app_masters.kill_later(entry))

        if not entry.ended and not entry.kill_reason:
            await self.changes.make(want)
        return entry

    async def pause(self, app_id: str, reason: str = "", *, by: str = "") -> AppEntry:
        """Ask an app to save checkpoints and stop. It is PAUSED once nothing of it runs; until then it keeps its GPUs.

        A paused app, or one that is about to be, stays as it is. `by` is as in `kill`.

        Raises:
            InputError: The app is unknown or has ended, or the reason cannot be shown.
            StoreError: The request cannot be written; the app goes on.
        """
        entry = await self.find(app_id)
        if reason:
            check_label(reason, "reason", f"pause of {app_id}")

        def want(change: Change) -> None:
            if entry.ended or entry.kill_reason:
                state = entry.state.value if entry.ended else entry.kill_reason
                raise InputError(f"app {entry.app_id} cannot be paused", value=state, remedy="it ends, or has ended")
            if not entry.is_active or entry.pause_reason:
                return
            pause_reason = reason or f"paused by {_actor(by, entry.spec.user)}"
            detail = {"reason": pause_reason, "user": by or entry.spec.user}
            change.event("app_pause_wanted", app_id=entry.app_id, detail=detail)
            change.put(entry, pause_reason=pause_reason)
            self.live_cluster.leave(change, entry.app_id, pause_reason)
            change.then(lambda: self.app_masters.pause_later(entry))

        await self.changes.make(want)
        return entry

    async def resume(self, app_id: str, *, by: str = "") -> AppEntry:
        """Bring a paused app back: its next attempt goes on from its checkpoints. `by` is as in `kill`.

        Raises:
            InputError: The app is unknown or not paused.
            StoreError: The request cannot be written; the app stays paused.
        """
        entry = await self.find(app_id)
        if entry.pause_reason:
            remedy = f"try again once `submarine app show {entry.app_id}` says PAUSED"
            raise InputError(f"app {entry.app_id} is not paused yet", value=entry.pause_reason, remedy=remedy)
        await self.app_masters.resume_app(entry, by)
        return entry

    async def find(self, reference: str, user: str = "") -> AppEntry:
        """Return the app of an id or name, also an archived one; see `AppEntries.get`.

        Raises:
            UnknownNameError: No app has this id or name.
            InputError: Several running apps have this name.
            StoreError: The store, which has the archived apps, cannot be read.
        """
        try:
            return self.entries.get(check_reference(reference), user)
        except UnknownNameError:
            archived = await self.recorder.archived_app(reference) if self.entries.archived else None
            if archived is None:
                raise
            return archived

    def usage(self, month: str, reader: Identity | None) -> dict[UsageKey, float]:
        """Return GPU seconds by month, user, queue and device type: of those whose apps the reader controls.

        Args:
            month: Such as `2026-11`; empty: all months.
            reader: Who asks; None for a reader who is not known.

        Raises:
            InputError: The month is not one.
        """
        if month and not re.fullmatch(r"\d{4}-(0[1-9]|1[0-2])", month):
            raise InputError("not a month", value=month, remedy="write it as 2026-11")
        return {
            key: gpu_s
            for key, gpu_s in self.recorder.summary.usage_at(self.clock.now_s()).items()
            if month in ("", key[0]) and reader is not None and reader.controls(AppOwner(user=key[1], queue=key[2]))
        }

    def shown_state(self, entry: AppEntry) -> str:
        """Return the state of an app as shown to people."""
        gpus = 0 if entry.ended else len(self.arbiter.table.live_of(entry.app_id))
        return shown_state(entry.state.value, gpus=gpus, hosted=entry.app_id in self.hosted)

    async def page_of_apps(
        self, *, states: Collection[AppState] = (), search: str = "", after: str = "", limit: int = 0
    ) -> AppPage:
        """Return a page of apps, archived ones included; see `app_page`.

        A search finds the apps that have each of its words in their id, name, user, queue or state.

        Raises:
            InputError: `after` is not the mark of a page.
            StoreError: The store, which has the archived apps, cannot be read.
        """
        # A word a thousand times would be looked for as often, in each app.
        words = list(dict.fromkeys(search.lower().split()))
        is_found = partial(self._has_words, words=words)
        found = filter(is_found, self.entries.newest_first(states, mark_key(after)))
        page = app_page(found, states=states, after=after, limit=limit)
        if not self.entries.archived or (page.entries and not page.entries[-1].ended and page.next_mark):
            return page
        # From before the store is read: an app that is archived meanwhile must be in one of both.
        kept = list(filter(is_found, self.entries.newest_first(states, mark_key(after))))
        has_ended, key = mark_key(after)
        # One more than the page holds shows whether there is another page.
        size, below = page_size(limit) + 1, -key if has_ended else math.inf
        async with self._searching if words else contextlib.nullcontext():
            archived = await self.recorder.archived_apps(below, states, words, size)
        everything = {entry.app_id: entry for entry in (*archived, *kept)}
        return app_page(sorted(everything.values(), key=list_key), states=states, after=after, limit=limit)

    def _has_words(self, entry: AppEntry, words: Sequence[str]) -> bool:
        if not words:
            return True
        spec, queue = entry.spec, self.app_masters.launches.queue(entry)
        text = search_text(entry.app_id, spec.name, spec.user, queue, self.shown_state(entry))
        return all(word in text for word in words)

    def folder(self, app_id: str) -> Path:
        """Return the folder of an app's files."""
        return app_folder(self.settings, app_id)

    def archive_path(self, entry: AppEntry) -> str:
        """Return the file with an app's events, empty if they are in the store or were dropped."""
        in_file = entry.archive not in ("", NO_ARCHIVE)
        return str(self.settings.files_dir.absolute() / FOLDER / entry.archive) if in_file else ""

    def notify(self, changes: Collection[LeaseChange]) -> None:
        """Notify the apps of the leases that a round changed; those without an app master get one."""
        self.live_cluster.notify(changes)
        self.app_masters.start_granted(changes)

    # ---- for the agent host ----

    def _host_failed(self, entry: AppEntry, problem: str) -> None:
        """Start the app master of an app that the agent host cannot evaluate: it says what is wrong, and ends it."""
        LOG.warning("%s: the agent host cannot evaluate it: %.1000s", entry.app_id, problem)
        self.app_masters.start_hosted(entry)


def _actor(by: str, owner: str) -> str:
    """Who asked for something to happen to an app, in words."""
    return "its user" if by in ("", owner) else by


def _submitted_detail(spec: AppSpec, by: str) -> dict[str, object]:
    return {
        "name": spec.name,
        "user": spec.user,
        "queue": spec.queue,
        **({} if by == spec.user else {"by": by}),
        "tuner": spec.tuner.name,
        "program": spec.program.name or "command",
        "replay": spec.replay,
        "jobs": len(spec.jobs),
        "demand_max_gpus": gpus_at_once(spec),
    }
