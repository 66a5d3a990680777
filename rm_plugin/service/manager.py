"""The ResourceManager: accepts apps, starts their app masters, and ends them. Owns the state of one event loop."""

from __future__ import annotations

import asyncio
import errno
import logging
import math
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from pathlib import Path

from rm_plugin.arbiter.core import Arbiter
from rm_plugin.engines.port import AmExit, AmLaunch, AppLauncher
from rm_plugin.service.admission import check_app
from rm_plugin.service.changes import Change, Changes
from rm_plugin.service.entries import AppEntries, AppEntry
from rm_plugin.service.live_cluster import LiveCluster
from rm_plugin.service.message_checks import check_message, check_reference, check_registration, read_detail
from rm_plugin.service.recorder import Recorder
from rm_plugin.service.round_runner import RoundRunner
from rm_plugin.service.session import Session
from rm_plugin.service.store import StoreError
from themis.apps import AppSpec
from themis.clock import Clock
from themis.config.names import check_label
from themis.config.rm_settings import RmSettings
from themis.errors import InputError, ThemisError, UnreachableError
from themis.lifecycle import APP_LIFECYCLE, AppState, LeaseState
from themis.wire import themis_pb2 as pb
from themis.wire.values import app_to_message, bid_from_message, cluster_to_message, report_from_message

LOG = logging.getLogger("themis.rm")

_FETCH_EVERY_S = 1.0

KILL_GRACE_S = 10.0
"""Seconds that an app master has to stop its tasks."""
RELAUNCH_EVERY_S = 5.0
"""Seconds between two tries to start an app while the engine is unavailable."""
LAUNCH_WAIT_S = 5.0
"""Seconds that a submit waits for the start of the app master."""

_SHORTAGES = frozenset((errno.ENOSPC, errno.EDQUOT, errno.ENOMEM, errno.EAGAIN, errno.EMFILE, errno.ENFILE))

_KEPT = ("release", "job_event", "finish")
"""Messages that the store keeps; app masters resend them until they are acknowledged."""


FetchLogs = Callable[[str, str, Path], Awaitable[None]]
"""Copies an app's logs from any machine into its folder here. Arguments: app id, page of its master, folder."""


async def there_already(app_id: str, page_url: str, folder: Path) -> None:
    """Do nothing: the app masters write into the folder themselves."""


class ResourceManager:
    """The methods that the gRPC services and the engine call."""

    def __init__(
        self,
        *,
        settings: RmSettings,
        arbiter: Arbiter,
        entries: AppEntries,
        recorder: Recorder,
        launcher: AppLauncher,
        clock: Clock,
        fetch_logs: FetchLogs = there_already,
    ) -> None:
        self.settings = settings
        self.arbiter = arbiter
        self.entries = entries
        self.recorder = recorder
        self.clock = clock
        self.address = ""
        self.rounds: RoundRunner
        self.changes = Changes(arbiter, recorder, validate=settings.validate_state)
        self.live_cluster = LiveCluster(
            settings=settings,
            arbiter=arbiter,
            entries=entries,
            changes=self.changes,
            clock=clock,
            rounds=lambda: self.rounds,
        )
        self._fetch_logs = fetch_logs
        self._fetching: dict[str, asyncio.Lock] = {}
        self._fetched: dict[str, tuple[bool, float]] = {}
        self._launcher = launcher
        self._unlaunched: set[str] = set()
        self._relaunch_at_s = 0.0
        self._tasks: set[asyncio.Task[None]] = set()
        self._looked_after: set[str] = set()
        self._resumed_at_s = -math.inf
        self._closing = False
        self.changes.on_recovery(self.resume)

    # ---- for clients ----

    def check(self, spec: AppSpec) -> None:
        """Raise InputError if the app is invalid or could never run on this cluster."""
        check_app(spec, self.arbiter.cluster)

    async def fetch_logs(self, entry: AppEntry) -> Path:
        """Return the app's folder, with its logs up to about a second ago."""
        folder = self.folder(entry.app_id)
        async with self._fetching.setdefault(entry.app_id, asyncio.Lock()):
            # One fetch at a time: two at once would append the same lines twice.
            state = (entry.ended, self.clock.now_s() // _FETCH_EVERY_S)
            if not (entry.ended and entry.logs_whole) and self._fetched.get(entry.app_id) != state:
                await self._fetch_logs(entry.app_id, "" if entry.ended else entry.page_url, folder)
                self._fetched[entry.app_id] = state
                entry.logs_whole = entry.ended
        return folder

    async def submit(self, spec: AppSpec) -> AppEntry:
        """Accept an app and start its app master.

        Raises:
            InputError: The app is invalid.
            StoreError: The app cannot be written; nothing of it remains.
        """
        self.check(spec)

        def accept(change: Change) -> AppEntry:
            now_s = change.now_s
            entry = AppEntry(app_id=self.entries.next_id(), spec=spec, submitted_at_s=now_s, last_seen_s=now_s)
            change.put(entry)
            change.event("app_submitted", app_id=entry.app_id, detail=_submitted_detail(spec))
            change.then(lambda: self._add(entry))
            return entry

        entry = await self.changes.make(accept)
        launch = self._spawn(self._launch(entry))
        # The app is accepted. The client does not wait for an engine or a store that is unavailable.
        await asyncio.wait([launch], timeout=LAUNCH_WAIT_S)
        return entry

    def _add(self, entry: AppEntry) -> None:
        self.entries.add(entry)
        self.arbiter.add_app(entry.app_id, now_s=self.clock.now_s(), owner=entry.owner)

    async def kill(self, app_id: str, reason: str) -> AppEntry:
        """Ask an app to stop, and end it by force if it does not. An app that has ended stays as it is.

        Raises:
            InputError: The app is unknown, or the reason cannot be shown.
            StoreError: The request cannot be written; the app goes on.
        """
        entry = self.entries.get(check_reference(app_id))
        if reason:
            check_label(reason, "reason", f"kill of {app_id}")

        def want(change: Change) -> None:
            if entry.ended or entry.kill_reason:
                return
            kill_reason = reason or "killed by its user"
            # Written, so that the promise to end the app holds after a restart of this service too.
            change.event("app_kill_wanted", app_id=entry.app_id, detail={"reason": kill_reason})
            change.put(entry, kill_reason=kill_reason)
            self.live_cluster.leave(change, entry.app_id, kill_reason)
            change.then(lambda: self._shut_down(entry))

        if not entry.ended and not entry.kill_reason:
            await self.changes.make(want)
        return entry

    def _shut_down(self, entry: AppEntry) -> None:
        if entry.session is not None:
            entry.session.send(pb.RmMessage(shut_down=pb.ShutDown(reason=entry.kill_reason)))
        self._spawn(self._kill_after(entry, KILL_GRACE_S if entry.session is not None else 0.0))

    # ---- for sessions ----

    async def register(self, message: pb.Register) -> tuple[AppEntry, Session]:
        """Open the session of an attempt, once the registration is written.

        Raises:
            InputError: `check_registration` refuses the attempt.
        """
        entry = self.entries.get(check_reference(message.app_id))
        session = Session(entry.app_id, message.attempt)
        try:
            await self.changes.make_surely(lambda change: self._open(change, entry, session, message))
        except asyncio.CancelledError:
            # The stream broke during the write: its messages would have no reader.
            session.close()
            self.disconnected(entry, session)
            raise
        return entry, session

    def _open(self, change: Change, entry: AppEntry, session: Session, message: pb.Register) -> None:
        check_registration(message, entry)
        if message.attempt > entry.attempt:
            self._next_attempt(change, entry, message)
        change.then(lambda: self._take_session(entry, session))
        self.live_cluster.release_unheld(change, entry.app_id, set(message.held_lease_ids))
        state = entry.state
        if state is not AppState.RUNNING:
            state = APP_LIFECYCLE.check(state, AppState.RUNNING, entry.app_id)
        change.put(
            entry,
            state=state,
            pid=message.pid,
            page_url=message.page_url,
            engine_id=message.engine_id,
            registered_attempt=message.attempt,
        )
        change.event("am_registered", app_id=entry.app_id, detail={"attempt": message.attempt, "pid": message.pid})
        change.then(lambda: self._greet(entry, session))

    def _take_session(self, entry: AppEntry, session: Session) -> None:
        if entry.session is not None:
            entry.session.close()
        entry.session, entry.last_seen_s = (None if session.closed else session), self.clock.now_s()
        self.arbiter.set_silent(entry.app_id, session.closed or bool(entry.kill_reason))

    def _greet(self, entry: AppEntry, session: Session) -> None:
        session.send(pb.RmMessage(registered=self._welcome(entry)))
        if entry.kill_reason:
            session.send(pb.RmMessage(shut_down=pb.ShutDown(reason=entry.kill_reason)))
        self.rounds.trigger("app arrived")

    async def receive(self, entry: AppEntry, session: Session, message: pb.AmMessage) -> None:
        """Process one message of a session. An invalid message is refused and has no other effect.

        A message that the store keeps is acknowledged only once it is written.
        """
        entry.last_seen_s = self.clock.now_s()
        body = message.WhichOneof("body")
        try:
            check_message(message, entry, session.attempt, self.arbiter.cluster, self.clock.now_s())
            if body in _KEPT:
                await self.changes.make_surely(lambda change: self._keep(change, entry, session, message))
            else:
                self._take(entry, session, message)
        except (InputError, ValueError) as error:
            entry.refused_messages += 1
            LOG.warning("%s: refused a %s: %.1000s", entry.app_id, body, error)
        session.send(pb.RmMessage(acknowledge=self._acknowledge(entry, message.id)))

    def _take(self, entry: AppEntry, session: Session, message: pb.AmMessage) -> None:
        """Process a message that is only of use now; app masters do not resend it."""
        body = message.WhichOneof("body")
        if body == "rho":
            session.take_report(report_from_message(message.rho, entry.app_id))
        elif body == "bid":
            session.bid_prepare_ms = message.bid.prepare_ms
            session.take_bid(bid_from_message(message.bid, entry.app_id))
        elif body == "heartbeat" and not entry.ended:
            entry.heartbeat = message.heartbeat
            self.rounds.demand_changed(entry.app_id, message.heartbeat.unmet_gpus)

    def _keep(self, change: Change, entry: AppEntry, session: Session, message: pb.AmMessage) -> None:
        """Process a message that app masters resend until it is acknowledged, so it may come twice."""
        number = (session.attempt, message.id)
        if number <= entry.last_message:
            return
        body = message.WhichOneof("body")
        if body == "release":
            self.live_cluster.release(change, entry.app_id, message.release)
        elif body == "job_event":
            self._take_job_event(change, entry, message.job_event)
        else:
            self._finish(change, entry, message.finish)
        change.set(entry, last_message=number)

    def disconnected(self, entry: AppEntry, session: Session) -> None:
        """Note that a session's stream broke; the app master may come back until `am_expiry_s` has passed."""
        if entry.session is session:
            entry.session = None
            if not entry.ended:
                self.arbiter.set_silent(entry.app_id, True)

    # ---- for the engine ----

    async def am_exited(self, exit_: AmExit) -> None:
        """Handle the end of an app master. Nothing of its attempt runs any more."""
        try:
            await self._am_exited(exit_)
        except StoreError:
            # This service stops while its store cannot be written. Its next start sees that the app master is gone.
            LOG.warning("the end of the app master of %s is not written", exit_.app_id)

    async def _am_exited(self, exit_: AmExit) -> None:
        entry = self.entries.get(exit_.app_id)
        if entry.ended or self._closing or exit_.attempt < entry.attempt or entry.forced_reason:
            # `_take_by_force` handles the loss itself after its kill, which would hit a new attempt too.
            return
        # An engine may have made attempts by itself that never registered.
        entry.attempt = exit_.attempt
        if exit_.killed:
            await self._killed_from_outside(entry, exit_.killed)
            return
        reason = "it ended" if exit_.exit_code is None else f"exit code {exit_.exit_code}"
        await self._lost(entry, reason)

    # ---- life of the service ----

    async def watch_over(self) -> None:
        """Revoke overdue leases and replace app masters that are silent too long; runs for ever."""
        pause_s = min(0.5, self.settings.am_expiry_s / 4, self.settings.lease.grace_s / 4)
        looked_s = self.clock.now_s()
        while True:
            await asyncio.sleep(pause_s)
            now_s = self.clock.now_s()
            if now_s - looked_s > pause_s + self.settings.am_expiry_s / 4:
                # This process was suspended: messages of the apps are still unread.
                LOG.warning("nothing was looked at for %.1f s: every app gets its time anew", now_s - looked_s)
                self.resume()
            looked_s = now_s
            try:
                self.look()
            except Exception:
                # A defect in one look must not leave leases and app masters unwatched for good.
                LOG.exception("the apps could not be looked at")

    def look(self) -> None:
        """Check every app once."""
        # A revoked lease could not be written.
        if self.changes.trouble:
            return
        now_s = self.clock.now_s()
        # After a suspension of this service, overdue leases get a new grace period.
        late = now_s - self._resumed_at_s >= self.settings.lease.grace_s
        overdue = self.arbiter.overdue_apps(now_s) if late else set()
        for entry in self.entries.active():
            # In a task each: a kill may wait a minute for the machines of one app.
            if entry.app_id not in self._looked_after:
                self._looked_after.add(entry.app_id)
                self._spawn(self._look(entry, overdue=entry.app_id in overdue))

    def resume(self) -> None:
        """Restart the time until app masters count as silent, after this service was suspended or could not write."""
        self._resumed_at_s = self.clock.now_s()
        for entry in self.entries.active():
            entry.last_seen_s = self._resumed_at_s

    async def _look(self, entry: AppEntry, *, overdue: bool) -> None:
        try:
            await self._look_after(entry, overdue=overdue)
        except Exception:
            # The engine may be unavailable: nothing was revoked, and the next look tries again.
            LOG.exception("%s cannot be taken by force", entry.app_id)
        finally:
            self._looked_after.discard(entry.app_id)

    async def _look_after(self, entry: AppEntry, *, overdue: bool) -> None:
        now_s = self.clock.now_s()
        if overdue:
            await self._take_by_force(entry, "the lease was not given back in time")
            return
        if entry.app_id in self._unlaunched:
            # `_kill_after` ends an app that is being killed. All others wait for the engine.
            if not entry.kill_reason and now_s >= self._relaunch_at_s:
                await self._start(entry)
            return
        known = entry.registered_attempt == entry.attempt
        # YARN restarts an app master by itself. Until the new one registers, it counts as starting, not as silent.
        coming = not known or (self.settings.engine == "yarn" and entry.session is None)
        if now_s - entry.last_seen_s > (self.settings.am_start_s if coming else self.settings.am_expiry_s):
            await self._take_by_force(entry, "the app master is silent" if known else "it never registered")

    async def recover(self) -> None:
        """Restore the apps of a former ResourceManager: adopt their app masters, or start them again."""
        for app_id in sorted(self.entries.lost):
            await self._end_lost(app_id)
        self.resume()
        for entry in self.entries.active():
            # Its master may have registered with the former ResourceManager, and will again at once if it lives.
            entry.registered_attempt = entry.attempt
            if entry.kill_reason:
                leave = partial(self.live_cluster.leave, app_id=entry.app_id, reason=entry.kill_reason)
                await self.changes.make_surely(leave)
            adopted = await self._adopted(entry)
            if entry.ended:
                # It was killed while the engine was away, which now may have found it alive.
                if adopted:
                    self._spawn(self._kill_leftover(entry.app_id))
                continue
            if adopted:
                if entry.kill_reason:
                    self._spawn(self._kill_after(entry, KILL_GRACE_S))
                continue
            if entry.attempt:
                entry.excused_attempts += 1
                await self._lost(entry, "it was gone when the ResourceManager came back")
            elif entry.kill_reason:
                await self._end_surely(entry, AppState.KILLED, entry.kill_reason)
            else:
                # It was submitted, and the former ResourceManager stopped before it could be started.
                await self._launch(entry)

    async def _adopted(self, entry: AppEntry) -> bool:
        """Whether the app master lives; waits while the engine is unavailable."""
        while True:
            try:
                return await self._launcher.adopt(entry.app_id, entry.attempt, entry.pid)
            except UnreachableError as error:
                LOG.warning("%s waits to be taken up, as the engine is away: %s", entry.app_id, error)
                await asyncio.sleep(RELAUNCH_EVERY_S)

    async def close(self) -> None:
        """End every app master and task of this run. A later start restores the running apps."""
        self._closing = True
        self.changes.stop_waiting()
        for task in self._tasks:
            task.cancel()
        for entry in self.entries.active():
            if entry.session is not None:
                entry.session.close()
        await self._launcher.shutdown()

    # ---- inside ----

    async def _launch(self, entry: AppEntry) -> None:
        entry.attempt += 1
        entry.turn(AppState.ACCEPTED)
        await self._start(entry)

    async def _start(self, entry: AppEntry) -> None:
        """Start the attempt. While the engine is away or this machine is full the app stays ACCEPTED and waits."""
        folder = self.folder(entry.app_id)
        environment = {
            "THEMIS_RM_ADDRESS": self.address,
            "THEMIS_APP_TOKEN": entry.token,
            "THEMIS_APP_DIR": str(folder),
        }
        launch = AmLaunch(
            app_id=entry.app_id,
            attempt=entry.attempt,
            environment=environment,
            working_dir=folder,
            name=entry.spec.name,
            user=entry.spec.user,
            queue=entry.spec.queue,
            attempts_left=self.settings.am_max_attempts - (entry.attempt - 1 - entry.excused_attempts),
        )
        try:
            entry.pid = await self._launcher.launch(launch)
        except ThemisError as error:
            if isinstance(error, UnreachableError) or _is_shortage(error):
                LOG.warning("%s waits to be started: %s", entry.app_id, error)
                if not entry.ended:
                    self._unlaunched.add(entry.app_id)
                self._relaunch_at_s = self.clock.now_s() + RELAUNCH_EVERY_S
            elif not entry.ended:
                await self._end_surely(entry, AppState.FAILED, f"its app master could not be started: {error}")
            return
        self._unlaunched.discard(entry.app_id)
        if entry.ended or self._closing:
            # A kill ended it while it was being started.
            await self._launcher.kill(entry.app_id)
            return
        entry.last_seen_s = self.clock.now_s()

        def started(change: Change) -> None:
            # While this waited for the store, the attempt may have ended.
            if not entry.ended and entry.attempt == launch.attempt and entry.lost_attempt != launch.attempt:
                detail = {"attempt": entry.attempt, "pid": entry.pid}
                change.event("am_started", app_id=entry.app_id, detail=detail)
                change.put(entry)

        await self.changes.make_surely(started)

    async def _lost(self, entry: AppEntry, reason: str) -> None:
        """Start another attempt after the end of this one and its tasks, or end the app."""
        attempt = entry.attempt
        self.arbiter.set_silent(entry.app_id, True)
        if await self.changes.make_surely(lambda change: self._decide_loss(change, entry, attempt, reason)):
            await self._launch(entry)

    def _decide_loss(self, change: Change, entry: AppEntry, attempt: int, reason: str) -> bool:
        """Return whether the app gets another attempt after the loss of this one."""
        if entry.ended or entry.lost_attempt == attempt or entry.attempt != attempt:
            return False
        change.event("am_lost", app_id=entry.app_id, detail={"attempt": attempt, "reason": reason})
        # What it was giving back anyway is free now. The rest waits for the next attempt, unless it was taken by force.
        leases = self.arbiter.table.of_app(entry.app_id)
        gone = [lease for lease in leases if entry.forced_reason or lease.state is LeaseState.EXPIRING]
        change.then(lambda: _close_session(entry))
        ids = [lease.lease_id for lease in gone]
        self.live_cluster.revoke(change, ids, entry.forced_reason or "its app master is gone")
        change.set(entry, lost_attempt=attempt, forced_reason="", last_seen_s=change.now_s)
        if entry.kill_reason:
            self._end(change, entry, AppState.KILLED, entry.kill_reason)
        elif (failures := attempt - entry.excused_attempts) >= self.settings.am_max_attempts:
            self._end(change, entry, AppState.FAILED, f"its app master was lost {failures} times, at last: {reason}")
        else:
            return True
        return False

    def _next_attempt(self, change: Change, entry: AppEntry, message: pb.Register) -> None:
        """The engine itself started another attempt, after the end of the former."""
        reason = "the engine started another attempt"
        change.event("am_lost", app_id=entry.app_id, detail={"attempt": entry.attempt, "reason": reason})
        detail = {"attempt": message.attempt, "pid": message.pid}
        change.event("am_started", app_id=entry.app_id, detail=detail)
        change.put(entry, attempt=message.attempt)

    async def _killed_from_outside(self, entry: AppEntry, diagnostics: str) -> None:
        """An operator ended the app in the engine; nothing of it runs any more."""
        _close_session(entry)
        await self._end_surely(entry, AppState.KILLED, entry.kill_reason or diagnostics)

    async def _take_by_force(self, entry: AppEntry, reason: str) -> None:
        """Kill all of an app's processes, then end its leases: never the other way round."""
        LOG.warning("%s: %s: taken by force", entry.app_id, reason)
        entry.last_seen_s, entry.forced_reason = self.clock.now_s(), reason
        try:
            await self._launcher.kill(entry.app_id)
        except BaseException:
            entry.forced_reason = ""
            raise
        # An attempt that still waits for the engine ends through no fault of the app.
        entry.excused_attempts += entry.app_id in self._unlaunched
        await self._lost(entry, reason)

    async def _end_lost(self, app_id: str) -> None:
        """End what runs of an app that cannot be read, before its GPUs are given out."""
        try:
            await self._launcher.kill(app_id)
        except ThemisError:
            LOG.exception("what is left of %s cannot be killed yet", app_id)
            self._spawn(self._kill_leftover(app_id))

    async def _kill_leftover(self, app_id: str) -> None:
        """End what still runs of an app that has ended."""
        while True:
            try:
                await self._launcher.kill(app_id)
                return
            except ThemisError:
                LOG.exception("what is left of %s cannot be killed", app_id)
                await asyncio.sleep(KILL_GRACE_S)

    async def _kill_after(self, entry: AppEntry, grace_s: float) -> None:
        await asyncio.sleep(grace_s)
        while not entry.ended:
            try:
                await self._launcher.kill(entry.app_id)
                break
            except ThemisError:
                LOG.exception("%s cannot be killed", entry.app_id)
                await asyncio.sleep(KILL_GRACE_S)
        await self._end_surely(entry, AppState.KILLED, entry.kill_reason)

    def _take_job_event(self, change: Change, entry: AppEntry, message: pb.JobEvent) -> None:
        change.event(message.kind, app_id=entry.app_id, detail=read_detail(message), time_s=message.time_s or None)

    def _finish(self, change: Change, entry: AppEntry, message: pb.Finish) -> None:
        if entry.ended:
            return
        state = AppState.KILLED if entry.kill_reason else AppState(message.state)
        change.set(entry, finish=message)
        self._end(change, entry, state, entry.kill_reason or message.diagnostics)

    async def _end_surely(self, entry: AppEntry, state: AppState, diagnostics: str) -> None:
        """End an app of which nothing runs any more, unless it has ended."""

        def end(change: Change) -> None:
            if not entry.ended:
                self._end(change, entry, state, diagnostics)

        await self.changes.make_surely(end)

    def _end(self, change: Change, entry: AppEntry, state: AppState, diagnostics: str) -> None:
        now_s = change.now_s
        # Before its leases end, and after: they count until now.
        gpu_time_s = self.arbiter.attained_gpu_s(entry.app_id, now_s)
        leases = [lease.lease_id for lease in self.arbiter.table.of_app(entry.app_id)]
        ended = self.arbiter.release(leases, now_s=now_s, reason="the app ended")
        state = APP_LIFECYCLE.check(entry.state, state, entry.app_id)
        change.event("app_state", app_id=entry.app_id, detail={"state": state.value, "diagnostics": diagnostics})
        change.put(entry, state=state, finished_at_s=now_s, diagnostics=diagnostics, gpu_time_s=gpu_time_s)
        change.then(lambda: self._forget(entry))
        self.live_cluster.leases_ended(change, ended, but_for=entry.app_id)
        change.then(lambda: self._spawn(self._bring_logs(entry)))

    def _forget(self, entry: AppEntry) -> None:
        # Its leases have ended.
        self.arbiter.end_app(entry.app_id, now_s=self.clock.now_s(), reason="the app ended")
        self._unlaunched.discard(entry.app_id)

    async def _bring_logs(self, entry: AppEntry) -> None:
        await self.fetch_logs(entry)

    def _welcome(self, entry: AppEntry) -> pb.Registered:
        lease = self.settings.lease
        now_s = self.clock.now_s()
        return pb.Registered(
            spec=app_to_message(entry.spec),
            cluster=cluster_to_message(self.arbiter.cluster),
            submitted_at_s=entry.submitted_at_s,
            now_s=now_s,
            lease_s=lease.duration_s,
            checkpoint_lead_s=lease.checkpoint_lead_s,
            grace_s=lease.grace_s,
            heartbeat_s=self.settings.heartbeat_s,
            time_scale=self.settings.time_scale,
            leases=self.live_cluster.lease_update(entry.app_id),
            active_apps=self.arbiter.active_count,
            contention=self.arbiter.contention(entry.app_id, now_s),
            bundle_rule=self.settings.auction.bundle_rule.value,
            app_id=entry.app_id,
            gpus_available=self.arbiter.gpus_available,
        )

    def _acknowledge(self, entry: AppEntry, message_id: int) -> pb.Acknowledge:
        now_s = self.clock.now_s()
        return pb.Acknowledge(
            of_id=message_id,
            now_s=now_s,
            contention=math.nan if entry.ended else self.arbiter.contention(entry.app_id, now_s),
            active_apps=self.arbiter.active_count,
        )

    def folder(self, app_id: str) -> Path:
        """Where an app's files lie."""
        return self.settings.state_dir.absolute() / "apps" / app_id

    def _spawn(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


def _is_shortage(error: ThemisError) -> bool:
    """Whether this machine lacks disk space, memory, processes or files for now: no fault of the app."""
    cause = error.__cause__
    return isinstance(cause, OSError) and cause.errno in _SHORTAGES


def _close_session(entry: AppEntry) -> None:
    if entry.session is not None:
        entry.session.close()
        entry.session = None


def _submitted_detail(spec: AppSpec) -> dict[str, object]:
    return {
        "name": spec.name,
        "user": spec.user,
        "tuner": spec.tuner.name,
        "program": spec.program.name or "command",
        "replay": spec.replay,
        "jobs": len(spec.jobs),
        "demand_max_gpus": spec.demand_max_gpus,
    }
