"""Start the app masters, watch them, replace lost ones, and end or pause apps of which nothing runs any more."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
from collections.abc import Callable, Collection, Coroutine, Iterable
from functools import partial
from typing import Any

from rm_plugin.arbiter.core import Arbiter
from rm_plugin.engines.port import AmExit, AppLauncher
from rm_plugin.service.app_quotas import AppQuotas
from rm_plugin.service.attempt_losses import AttemptLosses
from rm_plugin.service.changes import Change, Changes
from rm_plugin.service.entries import AppEntries, AppEntry
from rm_plugin.service.grant_limit import NO_GRANT_LIMIT
from rm_plugin.service.hosted_apps import HostedApps
from rm_plugin.service.launches import Launches
from rm_plugin.service.live_cluster import LiveCluster
from rm_plugin.service.starts import Starts
from rm_plugin.service.store import StoreError
from themis.clock import Clock
from themis.config.rm_settings import RmSettings
from themis.errors import InputError, ThemisError
from themis.leases import LeaseChange
from themis.lifecycle import APP_LIFECYCLE, AppState, JobState, LeaseState
from themis.wire import themis_pb2 as pb

LOG = logging.getLogger("themis.rm")

KILL_GRACE_S = 10.0
"""Seconds that an app master has to stop its tasks."""
LAUNCH_WAIT_S = 5.0
"""Seconds that a submit or a resume waits for the start of the app master."""


class AppMasters:
    """The app masters of all apps, from their start in the engine to the end of their apps.

    An attempt is one app master. If it is lost, the next attempt starts, unless `am_max_attempts` of them were lost
    within `am_failures_window_s`. What the site did does not count, but if attempts are lost one after the other
    without progress, each waits longer than the one before. GPUs are taken from an app only after all of its processes
    are killed.

    Args:
        settings: Deadlines, number of attempts, and the folder of the apps.
        arbiter: Holds the leases.
        entries: The apps.
        changes: Writes every change before it takes effect.
        live_cluster: Ends leases and notifies other apps.
        hosted: The apps for which the agent host answers instead.
        launcher: The engine's side: starts and kills.
        clock: The present time.
        quotas: Which apps wait until others end.
        on_ended: Runs in the background after an app has ended.
        note_end: Adds to the change in which an app ends.
    """

    def __init__(
        self,
        *,
        settings: RmSettings,
        arbiter: Arbiter,
        entries: AppEntries,
        changes: Changes,
        live_cluster: LiveCluster,
        hosted: HostedApps,
        launcher: AppLauncher,
        clock: Clock,
        quotas: AppQuotas,
        on_ended: Callable[[AppEntry], Coroutine[Any, Any, object]],
        note_end: Callable[[Change, AppEntry], None],
    ) -> None:
        self.settings = settings
        self.launches = Launches(settings, launcher, changes, clock, refusal_key=entries.refusal_key)
        self._arbiter = arbiter
        self._entries = entries
        self._changes = changes
        self._live_cluster = live_cluster
        self._hosted = hosted
        self._clock = clock
        self._on_ended = on_ended
        self._note_end = note_end
        self._starts = Starts(settings.am_starts_at_once)
        self._quotas = quotas
        # The apps whose next attempt waits until `next_at_s` of their losses.
        self._delayed: set[str] = set()
        # The kills of app masters of resting apps: the next attempt starts after them.
        self._leftovers: dict[str, asyncio.Task[Any]] = {}
        self._tasks: set[asyncio.Task[Any]] = set()
        self._being_checked: set[str] = set()
        # The active apps for which the agent host does not answer, and which do not wait for admission.
        self._watched: dict[str, AppEntry] = {}
        self._resumed_at_s = -math.inf
        self._engine_away = False
        self._engine_away_at_s = -math.inf
        self._closing = False
        changes.on_recovery(self.resume)
        active = entries.active()
        self._watched.update({entry.app_id: entry for entry in active if entry.is_admitted})
        quotas.restore(active)

    @property
    def count(self) -> int:
        """The number of app masters that run, start or are to start."""
        return len(self._watched)

    async def take_up(self, entry: AppEntry, *, timeout_s: float | None = None) -> None:
        """Start the app master of an app that has none, or let the agent host answer for it until it is granted GPUs.

        An app that is not admitted is taken up once it is. `timeout_s` is as in `_launch_or_queue`.
        """
        if not entry.is_admitted or entry.leave_reason:
            return
        may_wait = self.settings.starts_at_grant and not entry.has_app_master
        if may_wait and not self._arbiter.table.of_app(entry.app_id):
            entry.turn(AppState.ACCEPTED)
            self._host(entry)
        else:
            await self._launch_or_queue(entry, timeout_s=timeout_s)

    def start_granted(self, changes: Iterable[LeaseChange]) -> None:
        """Start the app masters of hosted apps that have leases now, also of GPUs that others have yet to give back."""
        for app_id in sorted({change.lease.app_id for change in changes}):
            if app_id in self._hosted:
                self.start_hosted(self._entries.get(app_id))

    def start_hosted(self, entry: AppEntry) -> None:
        """Start the app master of a hosted app. Until it registers, the app is asked for nothing."""
        self._hosted.discard(entry.app_id)
        self._watched[entry.app_id] = entry
        self._arbiter.set_silent(entry.app_id, True)
        # Else it would count as silent since it began to wait.
        self._note_start(entry)
        self._spawn(self._launch(entry))

    def _note_start(self, entry: AppEntry) -> None:
        """Give an app master its time to register, during which its leases wait for it."""
        entry.last_seen_s = self._clock.now_s()
        self._arbiter.set_starting(entry.app_id, entry.last_seen_s + self.settings.am_start_s)

    def rest(self, change: Change, entry: AppEntry, view: bytes) -> None:
        """End an app master that waits for GPUs, within a change: the agent host answers by this view until a grant."""
        is_over = not entry.is_active or entry.leave_reason or not self.settings.starts_at_grant
        if is_over or self._arbiter.table.of_app(entry.app_id):
            return
        state = APP_LIFECYCLE.check(entry.state, AppState.ACCEPTED, entry.app_id)
        change.event("am_rested", app_id=entry.app_id, detail={"attempt": entry.attempt})
        # What the engine grants is heard from app masters alone.
        change.set(entry, lost_attempt=entry.attempt, grant_limit=NO_GRANT_LIMIT)
        losses = entry.attempt_losses.excused_up_to(entry.attempt)
        change.put(entry, state=state, resting_view=view, attempt_losses=losses, page_url="")
        change.then(lambda: self._end_resting(entry))

    def _end_resting(self, entry: AppEntry) -> None:
        _close_session(entry)
        self._leftovers[entry.app_id] = self._spawn(self._kill_leftover(entry.app_id))
        self._host(entry)

    def _host(self, entry: AppEntry) -> None:
        self._arbiter.set_silent(entry.app_id, bool(entry.leave_reason))
        self._watched.pop(entry.app_id, None)
        self._hosted.add(entry)

    def arrive(self, entry: AppEntry) -> None:
        """Let a new or resumed app share the cluster, unless it waits for admission.

        An app that waits does not take part in rounds, and has no part of its user's share. So fairness counts from its
        admission.
        """
        if entry.waits_since_s is not None:
            self._quotas.wait(entry)
            return
        self._quotas.enter(entry)
        self._watched[entry.app_id] = entry
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

    async def _admit_due(self) -> None:
        """Admit the apps that are within all limits now, those first that have waited longest."""

        def admit(change: Change) -> list[AppEntry]:
            due = self._quotas.due()
            for entry in due:
                change.put(entry, **_admitted(entry, change.now_s))
                change.then(partial(self.arrive, entry))
                change.then(partial(self._entries.note_admission, entry))
            return due

        for entry in await self._changes.make_surely(admit):
            self._spawn(self.take_up(entry))

    async def _launch_or_queue(self, entry: AppEntry, *, timeout_s: float | None = None) -> None:
        """Start the app's next attempt; return at once, or after `timeout_s`, if it has to wait in the background."""
        has_room = self._starts.has_room
        launch = self._spawn(self._launch(entry))
        if has_room:
            await asyncio.wait([launch], timeout=timeout_s)
            if launch.done():
                launch.result()

    def registered(self, app_id: str) -> None:
        """Note that an app master is no longer starting."""
        self._starts.done(app_id)

    def kill_later(self, entry: AppEntry) -> None:
        """Kill the app's processes after `KILL_GRACE_S`, or at once if no app master is connected. Then end the app."""
        self._spawn(self._kill_after(entry, KILL_GRACE_S if entry.session is not None else 0.0))

    def pause_later(self, entry: AppEntry) -> None:
        """Give the app the time for checkpoints that an ending lease gives. Then kill what still runs, and pause it."""
        self._spawn(self._pause_after(entry, self._pause_grace_s if entry.session is not None else 0.0))

    @property
    def _pause_grace_s(self) -> float:
        return max(KILL_GRACE_S, self.settings.lease.checkpoint_lead_s + self.settings.lease.grace_s)

    async def am_exited(self, exit_: AmExit) -> None:
        """Handle the end of an app master, from the engine. Nothing of its attempt runs any more."""
        try:
            await self._am_exited(exit_)
        except StoreError:
            # This service stops while its store cannot be written. Its next start sees that the app master is gone.
            LOG.warning("the end of the app master of %s is not written", exit_.app_id)

    async def _am_exited(self, exit_: AmExit) -> None:
        entry = self._entries.find(exit_.app_id)
        if entry is None or not entry.is_active or self._closing:
            return
        # The engine may have started further attempts of a launch that was given up, until a resume ends them.
        given_up = exit_.attempt - exit_.restarts <= entry.lost_attempt
        if exit_.attempt < entry.attempt or given_up or entry.forced_reason:
            # `_take_by_force` handles the loss itself after its kill, which would hit a new attempt too.
            return
        if entry.resting_view:
            return
        # An engine may have made attempts by itself that never registered.
        entry.attempt = exit_.attempt
        # For a pause this service itself may have killed it.
        if exit_.killed and not entry.pause_reason:
            await self._killed_from_outside(entry, exit_.killed)
            return
        reason = "it ended" if exit_.exit_code is None else f"exit code {exit_.exit_code}"
        reason = f"{reason}: {exit_.last_words}" if exit_.last_words else reason
        await self._lost(entry, reason, taken=exit_.taken)

    async def watch_over(self) -> None:
        """Revoke overdue leases and replace app masters that are silent too long; runs for ever."""
        pause_s = min(0.5, self.settings.am_expiry_s / 4, self.settings.lease.grace_s / 4)
        checked_s = self._clock.now_s()
        while True:
            await asyncio.sleep(pause_s)
            now_s = self._clock.now_s()
            if now_s - checked_s > pause_s + self.settings.am_expiry_s / 4:
                # This process was suspended: messages of the apps are still unread.
                LOG.warning("no app was checked for %.1f s: every app gets its full time again", now_s - checked_s)
                self.resume()
            checked_s = now_s
            try:
                self.check_apps()
            except Exception:
                # A defect in one check must not leave leases and app masters unwatched for good.
                LOG.exception("the apps could not be checked")

    def check_apps(self) -> None:
        """Check every app once, but for those that wait, hosted or for admission: nothing is due of them."""
        # The end of a revoked lease could not be written.
        if self._changes.trouble:
            return
        now_s = self._clock.now_s()
        if self._quotas.look():
            self._spawn(self._admit_due())
        if self._engine_away:
            self._engine_away_at_s = now_s
            self.resume()
        # After a suspension of this service, overdue leases get a new grace period.
        late = now_s - self._resumed_at_s >= self.settings.lease.grace_s
        overdue = self._arbiter.overdue_apps(now_s) if late else set()
        for entry in list(self._watched.values()):
            if entry.app_id in self._being_checked:
                continue
            action = self._due_action(entry, now_s, overdue=entry.app_id in overdue)
            if self.settings.starts_at_grant:
                self._ask_to_rest(entry, now_s)
            if action is not None:
                # In a task each: a kill may wait a minute for the machines of one app.
                self._being_checked.add(entry.app_id)
                self._spawn(self._act(entry, action))

    def _ask_to_rest(self, entry: AppEntry, now_s: float) -> None:
        """Ask an app master to rest that has had no GPUs for `am_idle_s`. One that cannot is asked again as late."""
        if entry.session is None or entry.leave_reason or self._arbiter.table.of_app(entry.app_id):
            entry.idle_since_s = now_s
        elif now_s - entry.idle_since_s >= self.settings.am_idle_s:
            entry.idle_since_s = now_s
            entry.session.send(pb.RmMessage(ask_rest=pb.AskRest()))

    def resume(self) -> None:
        """Restart the time until app masters count as silent and leases as overdue.

        Call this during or after an outage in which the service could not receive messages of app masters, write to
        the store, or use the engine.
        """
        self._resumed_at_s = self._clock.now_s()
        for entry in self._watched.values():
            entry.last_seen_s = self._resumed_at_s

    @property
    def is_engine_away(self) -> bool:
        """Whether the engine can neither start containers nor report their ends."""
        return self._engine_away

    def engine_is_away(self, away: bool) -> None:
        """Note whether the engine can start containers and report their ends.

        Otherwise no deadline passes: an app can neither start on its leases nor give them back. Once the engine is
        back, every deadline starts again.
        """
        if away or self._engine_away:
            self._engine_away_at_s = self._clock.now_s()
            self.resume()
        self._engine_away = away

    async def _act(self, entry: AppEntry, action: Coroutine[Any, Any, None]) -> None:
        try:
            await action
        except ThemisError as error:
            # The engine is unavailable: nothing was revoked, and the next check tries again.
            LOG.warning("%s cannot be taken by force: %s", entry.app_id, error)
        except Exception:
            LOG.exception("%s cannot be taken by force", entry.app_id)
        finally:
            self._being_checked.discard(entry.app_id)

    def _due_action(self, entry: AppEntry, now_s: float, *, overdue: bool) -> Coroutine[Any, Any, None] | None:
        """What has to be done about an app now. Returns None for most apps, so a look at all of them is cheap."""
        is_delayed = entry.app_id in self._delayed
        is_gone = entry.registered_attempt != entry.attempt or is_delayed
        if overdue and (is_gone or self._starts.waits(entry.app_id)):
            return self._take_back(entry)
        if overdue:
            return self._take_by_force(entry, "the lease was not given back in time")
        if is_delayed:
            is_due = not entry.leave_reason and now_s >= entry.attempt_losses.next_at_s
            return self._start_delayed(entry) if is_due else None
        if self._starts.waits(entry.app_id):
            return None
        if self.launches.failed(entry.app_id):
            # `_kill_after` and `_pause_after` end apps that are to leave. All others wait for the engine.
            is_due = not entry.leave_reason and now_s >= self.launches.again_at_s
            return self._start_again(entry) if is_due else None
        entry.launch_wait = "" if entry.session is not None else self.launches.waiting(entry.app_id)
        if entry.launch_wait:
            # Its time to register counts from the start of its container.
            entry.last_seen_s = now_s
            return None
        known = entry.registered_attempt == entry.attempt
        # YARN restarts an app master by itself. Until the new one registers, it counts as starting, not as silent.
        coming = not known or (self.settings.engine == "yarn" and entry.session is None)
        if now_s - entry.last_seen_s > (self.settings.am_start_s if coming else self.settings.am_expiry_s):
            return self._take_by_force(entry, "the app master is silent" if known else "it never registered")
        return None

    async def _start_delayed(self, entry: AppEntry) -> None:
        self._delayed.discard(entry.app_id)
        await self._launch_or_queue(entry)

    async def _start_again(self, entry: AppEntry) -> None:
        await self._starts.turn(entry.app_id)
        if not entry.is_active:
            self._starts.done(entry.app_id)
        else:
            await self._start(entry)

    async def recover(self) -> int:
        """Restore the apps of a former ResourceManager: adopt their app masters, or start them again.

        Returns:
            How many app masters were adopted.
        """
        run_on = 0
        for app_id in sorted(self._entries.lost):
            await self._end_lost(app_id)
        self.resume()
        for entry in self._entries.active():
            # A master that registered with the former ResourceManager will again at once if it lives. Another one of
            # this attempt still starts.
            entry.registered_attempt = entry.attempt if entry.state is AppState.RUNNING else 0
            if entry.leave_reason:
                leave = partial(self._live_cluster.leave, app_id=entry.app_id, reason=entry.leave_reason)
                await self._changes.make_surely(leave)
            if entry.resting_view:
                # The former ResourceManager may have been gone before it ended the app master.
                self._leftovers[entry.app_id] = self._spawn(self._kill_leftover(entry.app_id))
            adopted = entry.has_app_master and await self.launches.adopted(entry)
            run_on += adopted and entry.is_active
            if adopted:
                self._recover_adopted(entry)
            elif entry.is_active:
                await self._recover_gone(entry)
        return run_on

    def _recover_adopted(self, entry: AppEntry) -> None:
        """Go on with an app whose app master lives."""
        if not entry.is_active:
            # A user killed it while the engine was unavailable. The engine may have found it alive now.
            self._spawn(self._kill_leftover(entry.app_id))
        elif entry.kill_reason:
            self._spawn(self._kill_after(entry, KILL_GRACE_S))
        elif entry.pause_reason:
            self._spawn(self._pause_after(entry, self._pause_grace_s))
        elif entry.registered_attempt != entry.attempt:
            self._note_start(entry)

    async def _recover_gone(self, entry: AppEntry) -> None:
        """Go on with an app of which nothing runs any more."""
        if entry.has_app_master and entry.attempt > entry.attempt_losses.counted:
            entry.attempt_losses = entry.attempt_losses.excused_up_to(entry.attempt)
            await self._lost(entry, "it was gone when the ResourceManager came back")
        elif entry.kill_reason:
            await self._end_surely(entry, AppState.KILLED, entry.kill_reason)
        elif entry.pause_reason:
            await self._pause_surely(entry)
        else:
            # It waited without an app master, or the former ResourceManager stopped before it could start the next one.
            if entry.has_app_master:
                entry.lost_attempt = entry.attempt
                self._delay(entry)
            if entry.app_id not in self._delayed:
                await self.take_up(entry)

    async def close(self, *, keep_apps: bool = False) -> None:
        """End every app master and task of this run, unless `keep_apps`. A later start restores the running apps.

        Their leases stay, so that the first app that comes back does not take the GPUs of all.
        """
        self._closing = True
        self._changes.stop_waiting()
        with contextlib.suppress(StoreError):
            # The next start shows their progress until their app masters report again.
            await self._changes.make(self._keep_progress)
        for task in self._tasks:
            task.cancel()
        for entry in self._watched.values():
            if entry.session is not None:
                entry.session.close()
        await self._hosted.close()
        if not keep_apps:
            await self.launches.shutdown()

    def _keep_progress(self, change: Change) -> None:
        for entry in self._watched.values():
            change.put(entry)

    async def _launch(self, entry: AppEntry) -> None:
        await self._starts.turn(entry.app_id)
        # A pause and a resume during the wait for a turn have made another start of this one.
        if not entry.is_admitted or entry.app_id in self._hosted or self._closing:
            self._starts.done(entry.app_id)
            return
        if (leftover := self._leftovers.pop(entry.app_id, None)) is not None:
            await leftover
        entry.attempt += 1
        entry.resting_view = b""
        entry.turn(AppState.ACCEPTED)
        await self._start(entry)

    async def _start(self, entry: AppEntry) -> None:
        """Start the attempt. The app stays ACCEPTED while the engine is unavailable or this machine lacks resources."""
        attempt = entry.attempt
        try:
            is_launched = await self.launches.launch(entry, self._arbiter.cluster.gpus)
        except ThemisError as error:
            self._starts.done(entry.app_id)
            if entry.is_active:
                await self._end_surely(entry, AppState.FAILED, f"its app master could not be started: {error}")
            return
        if not is_launched or not entry.is_active or self._closing:
            self._starts.done(entry.app_id)
            if is_launched:
                # A kill ended it while it was being started.
                await self.launches.kill(entry.app_id)
            return
        self._note_start(entry)

        def started(change: Change) -> None:
            # The attempt may have ended during the wait for the store.
            if entry.is_active and entry.attempt == attempt and entry.lost_attempt != attempt:
                detail = {"attempt": entry.attempt, "pid": entry.pid}
                change.event("am_started", app_id=entry.app_id, detail=detail)
                change.put(entry)

        await self._changes.make_surely(started)

    async def _lost(self, entry: AppEntry, reason: str, *, taken: Collection[int] = ()) -> None:
        """Start another attempt after the end of this one and its tasks, or end the app."""
        attempt = entry.attempt
        self._arbiter.set_silent(entry.app_id, True)
        self._starts.done(entry.app_id)
        goes_on = await self._changes.make_surely(
            lambda change: self._decide_loss(change, entry, attempt, reason, taken)
        )
        if goes_on and entry.app_id not in self._delayed:
            await self._launch_or_queue(entry)

    def _delay(self, entry: AppEntry) -> None:
        """Let the next attempt wait if attempts were lost one after the other without progress."""
        losses = entry.attempt_losses
        if losses.next_at_s > self._clock.now_s():
            self._delayed.add(entry.app_id)
            lost = f"{len(losses.fruitless_at_s)} attempts in a row were lost without progress"
            entry.launch_wait = f"{lost}, so the next one starts {losses.delay_s:.0f} s after the last loss"

    def _decide_loss(self, change: Change, entry: AppEntry, attempt: int, reason: str, taken: Collection[int]) -> bool:
        """Return whether the app gets another attempt after the loss of this one."""
        if not entry.is_active or entry.lost_attempt == attempt or entry.attempt != attempt:
            return False
        losses = self._losses(change, entry, attempt, taken)
        is_excused = change.now_s not in losses.failed_at_s and not entry.leave_reason
        self._note_loss(change, entry, attempt, f"{reason}; not counted as its failure" if is_excused else reason)
        # Leases that it was giving back end now. The others wait for the next attempt, unless they are taken by force.
        leases = self._arbiter.table.of_app(entry.app_id)
        gone = [lease for lease in leases if entry.forced_reason or lease.state is LeaseState.EXPIRING]
        change.then(lambda: _close_session(entry))
        ids = [lease.lease_id for lease in gone]
        self._live_cluster.revoke(change, ids, entry.forced_reason or "its app master is gone")
        if entry.pause_reason and not entry.kill_reason:
            change.set(entry, lost_attempt=attempt, forced_reason="")
            self.pause_app(change, entry)
            return False
        change.set(entry, lost_attempt=attempt, forced_reason="", last_seen_s=change.now_s)
        change.put(entry, attempt_losses=losses)
        if entry.kill_reason:
            self.end_app(change, entry, AppState.KILLED, entry.kill_reason)
        elif len(losses.failed_at_s) >= self.settings.am_max_attempts:
            diagnostics = f"its app master was lost {len(losses.failed_at_s)} times, at last: {reason}"
            self.end_app(change, entry, AppState.FAILED, diagnostics)
        else:
            # Within the change: a user may pause or kill the app before `_lost` goes on, which ends this pause.
            change.then(lambda: self._delay(entry))
            return True
        return False

    def _losses(self, change: Change, entry: AppEntry, attempt: int, taken: Collection[int]) -> AttemptLosses:
        """Count the loss of attempts up to this one. While the engine was unavailable, they were lost to it."""
        return entry.attempt_losses.after(
            attempt,
            change.now_s,
            taken=taken,
            all_excused=change.now_s - self._engine_away_at_s < self.settings.am_expiry_s,
            done=sum(job.iteration for job in entry.jobs),
            window_s=self.settings.am_failures_window_s,
        )

    def note_next_attempt(self, change: Change, entry: AppEntry, message: pb.Register, taken: Collection[int]) -> None:
        """Write that the engine itself started another attempt, after the end of the former one."""
        self._note_loss(change, entry, entry.attempt, "the engine started another attempt")
        detail = {"attempt": message.attempt, "pid": message.pid}
        change.event("am_started", app_id=entry.app_id, detail=detail)
        losses = self._losses(change, entry, message.attempt - 1, taken)
        change.put(entry, attempt=message.attempt, attempt_losses=losses)

    def _note_loss(self, change: Change, entry: AppEntry, attempt: int, reason: str) -> None:
        """Write that an attempt was lost. The app shows why until it ends, since it may fail again and again."""
        change.event("am_lost", app_id=entry.app_id, detail={"attempt": attempt, "reason": reason})
        change.put(entry, diagnostics=f"attempt {attempt} was lost: {reason}")

    async def _killed_from_outside(self, entry: AppEntry, diagnostics: str) -> None:
        """End an app that an operator killed in the engine. Nothing of it runs any more."""
        _close_session(entry)
        await self._end_surely(entry, AppState.KILLED, entry.kill_reason or diagnostics)

    async def _take_back(self, entry: AppEntry) -> None:
        """Revoke the overdue leases of an attempt that has not registered yet.

        The engine has ended all of the former attempt, so nothing runs on them.
        """
        late = self._arbiter.overdue(self._clock.now_s())
        ids = [lease.lease_id for lease in late if lease.app_id == entry.app_id]
        reason = "it ran out before the next attempt registered"
        await self._changes.make_surely(lambda change: self._live_cluster.revoke(change, ids, reason))

    async def _take_by_force(self, entry: AppEntry, reason: str) -> None:
        """Kill all of an app's processes, then revoke its leases: never the other way round."""
        LOG.warning("%s: %s: taken by force", entry.app_id, reason)
        entry.last_seen_s, entry.forced_reason = self._clock.now_s(), reason
        try:
            await self.launches.kill(entry.app_id)
        except BaseException:
            entry.forced_reason = ""
            raise
        # An attempt that still waits for the engine ends through no fault of the app.
        if self.launches.give_up(entry.app_id):
            entry.attempt_losses = entry.attempt_losses.excused_up_to(entry.attempt)
        try:
            taken = (await self.launches.attempts(entry)).taken
        except ThemisError as error:
            LOG.warning("the engine does not say how the attempts of %s ended: %s", entry.app_id, error)
            taken = frozenset()
        await self._lost(entry, reason, taken=taken)

    async def _end_lost(self, app_id: str) -> None:
        """Kill the processes of an app that the store cannot read, before its GPUs are granted to others."""
        try:
            await self.launches.kill(app_id)
        except ThemisError as error:
            LOG.warning("the processes left of %s cannot be killed yet: %s", app_id, error)
            self._spawn(self._kill_leftover(app_id))

    async def _kill_leftover(self, app_id: str) -> None:
        """Kill the processes left of an app that has ended, or whose app master rests."""
        await self._kill_surely(app_id, lambda: True)

    async def _kill_after(self, entry: AppEntry, grace_s: float) -> None:
        await asyncio.sleep(grace_s)
        # Nothing ever ran of an app without an attempt.
        await self._kill_surely(entry.app_id, lambda: bool(entry.attempt) and not entry.ended)
        await self._end_surely(entry, AppState.KILLED, entry.kill_reason)

    async def _pause_after(self, entry: AppEntry, grace_s: float) -> None:
        lost_attempt = entry.lost_attempt
        await asyncio.sleep(grace_s)
        await self._kill_surely(entry.app_id, lambda: _is_pausing(entry, lost_attempt))
        if _is_pausing(entry, lost_attempt):
            await self._pause_surely(entry)

    async def _kill_surely(self, app_id: str, is_wanted: Callable[[], bool]) -> None:
        """Kill an app's processes, if that is still wanted; tries until the engine can."""
        failed = False
        while True:
            try:
                await self.launches.kill(app_id, is_wanted)
            except ThemisError as error:
                if not failed:
                    LOG.warning("the processes of %s cannot be killed yet: %s", app_id, error)
                failed = True
            else:
                if failed:
                    LOG.info("the processes of %s are killed, after a wait", app_id)
                return
            await asyncio.sleep(KILL_GRACE_S)

    async def _pause_surely(self, entry: AppEntry) -> None:
        """Pause an app of which nothing runs any more, unless it has ended or is paused; waits for the store."""

        def pause(change: Change) -> None:
            if _is_pausing(entry, entry.lost_attempt):
                self.pause_app(change, entry)

        await self._changes.make_surely(pause)

    async def _end_surely(self, entry: AppEntry, state: AppState, diagnostics: str) -> None:
        """End an app of which nothing runs any more, unless it has ended; waits for the store."""

        def end(change: Change) -> None:
            if not entry.ended:
                self.end_app(change, entry, state, diagnostics)

        await self._changes.make_surely(end)

    def end_app(self, change: Change, entry: AppEntry, state: AppState, diagnostics: str) -> None:
        """End an app and its leases, within a change."""
        self._leave(change, entry, state, diagnostics, "the app ended")
        change.put(entry, finished_at_s=change.now_s)
        self._note_end(change, entry)
        change.then(lambda: self._spawn(self._on_ended(entry)))

    def pause_app(self, change: Change, entry: AppEntry) -> None:
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

    async def resume_app(self, entry: AppEntry, by: str) -> None:
        """Start the next attempt of a paused app, which goes on from its journal and its checkpoints.

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
        if entry.app_id not in self._quotas.waiting:
            await self.take_up(entry, timeout_s=LAUNCH_WAIT_S)

    def _leave(self, change: Change, entry: AppEntry, state: AppState, diagnostics: str, reason: str) -> None:
        """Turn an app to a state in which nothing of it runs, and end its leases."""
        now_s = change.now_s
        if entry.is_admitted:
            # Read before the leases end: their time counts up to now.
            change.set(entry, gpu_time_s=self._arbiter.attained_gpu_s(entry.app_id, now_s))
        elif entry.is_active:
            change.set(entry, **_admitted(entry, now_s))
        leases = [lease.lease_id for lease in self._arbiter.table.of_app(entry.app_id)]
        ended = self._arbiter.release(leases, now_s=now_s, reason=reason)
        state = APP_LIFECYCLE.check(entry.state, state, entry.app_id)
        change.event("app_state", app_id=entry.app_id, detail={"state": state.value, "diagnostics": diagnostics})
        change.put(entry, state=state, diagnostics=diagnostics)
        change.then(lambda: self._forget(entry, reason, is_paused=state is AppState.PAUSED))
        self._live_cluster.leases_ended(change, ended, but_for=entry.app_id)

    def _forget(self, entry: AppEntry, reason: str, *, is_paused: bool) -> None:
        self._hosted.discard(entry.app_id)
        self._watched.pop(entry.app_id, None)
        self._leftovers.pop(entry.app_id, None)
        self._arbiter.end_app(entry.app_id, now_s=self._clock.now_s(), reason=reason, is_paused=is_paused)
        self.launches.forget(entry.app_id)
        self._delayed.discard(entry.app_id)
        self._quotas.leave(entry)
        self._starts.done(entry.app_id)

    def _spawn(self, work: Coroutine[Any, Any, object]) -> asyncio.Task[Any]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


def _admitted(entry: AppEntry, now_s: float) -> dict[str, float | None]:
    """The attributes of an app whose wait for admission is over."""
    waited_s = 0.0 if entry.waits_since_s is None else max(0.0, now_s - entry.waits_since_s)
    return {"waits_since_s": None, "unadmitted_s": entry.unadmitted_s + waited_s}


def _is_pausing(entry: AppEntry, lost_attempt: int) -> bool:
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


def _close_session(entry: AppEntry) -> None:
    if entry.session is not None:
        entry.session.close()
        entry.session = None
