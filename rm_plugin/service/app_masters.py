"""Start the app masters, adopt, replace and kill them, until their apps end or are paused."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Collection, Coroutine, Iterable
from functools import partial
from typing import Any

from rm_plugin.arbiter.core import Arbiter
from rm_plugin.engines.port import AmExit, AppLauncher
from rm_plugin.service.am_watch import AmWatch, Due
from rm_plugin.service.app_lifecycle import AppLifecycle, is_pausing
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
from themis.errors import ThemisError
from themis.leases import LeaseChange
from themis.lifecycle import APP_LIFECYCLE, AppState, LeaseState
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
        self._starts = Starts(settings.am_starts_at_once)
        self.watch = AmWatch(settings, arbiter, self.launches, self._starts, clock)
        self.lifecycle = AppLifecycle(
            arbiter=arbiter,
            entries=entries,
            changes=changes,
            live_cluster=live_cluster,
            quotas=quotas,
            hosted=hosted,
            watch=self.watch,
            launches=self.launches,
            starts=self._starts,
            clock=clock,
            note_end=note_end,
            on_ended=lambda entry: self._spawn(on_ended(entry)),
        )
        self._quotas = quotas
        # The kills of app masters of resting apps: the next attempt starts after them.
        self._leftovers: dict[str, asyncio.Task[Any]] = {}
        self._tasks: set[asyncio.Task[Any]] = set()
        self._being_checked: set[str] = set()
        self._closing = False
        changes.on_recovery(self.watch.resume)
        active = entries.active()
        for entry in active:
            if entry.is_admitted:
                self.watch.add(entry)
        quotas.restore(active)

    @property
    def count(self) -> int:
        """The number of app masters that run, start or are to start."""
        return len(self.watch)

    def heartbeat_s(self) -> float:
        """Return the seconds between two heartbeats of an app master: more with many of them."""
        return self.settings.heartbeat_time_s(self.count)

    async def take_up(self, entry: AppEntry, *, timeout_s: float | None = None) -> None:
        """Start the app master of an app that has none, or let the agent host answer for it until it is granted GPUs.

        An app that is not admitted is taken up once it is. `timeout_s` is as in `_launch_or_queue`.
        """
        if not entry.is_admitted or entry.leave_reason:
            return
        may_wait = self.settings.starts_at_grant and not entry.has_app_master
        if may_wait and not self._arbiter.table.holds(entry.app_id):
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
        self.watch.add(entry)
        self._arbiter.set_silent(entry.app_id, True)
        # Else it would count as silent since it began to wait.
        self.watch.note_start(entry)
        self._spawn(self._launch(entry))

    def rest(self, change: Change, entry: AppEntry, view: bytes) -> None:
        """End an app master that waits for GPUs, within a change: the agent host answers by this view until a grant."""
        is_over = not entry.is_active or entry.leave_reason or not self.settings.starts_at_grant
        if is_over or self._arbiter.table.holds(entry.app_id):
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
        self._end_leftover(entry.app_id)
        self._host(entry)

    def _end_leftover(self, app_id: str) -> None:
        """Kill the app master of a resting app in the background; the next attempt starts after it."""
        self._leftovers[app_id] = kill = self._spawn(self._kill_leftover(app_id))
        kill.add_done_callback(lambda _: self._leftovers.pop(app_id, None))

    def _host(self, entry: AppEntry) -> None:
        self._arbiter.set_silent(entry.app_id, bool(entry.leave_reason))
        self.watch.discard(entry.app_id)
        self._hosted.add(entry)

    async def resume_app(self, entry: AppEntry, by: str) -> None:
        """Start the next attempt of a paused app, which goes on from its journal and its checkpoints.

        Raises:
            InputError: The app is not paused.
            StoreError: The change cannot be written; the app stays paused.
        """
        await self.lifecycle.resume(entry, by)
        if entry.app_id not in self._quotas.waiting:
            await self.take_up(entry, timeout_s=LAUNCH_WAIT_S)

    async def _admit_due(self) -> None:
        for entry in await self.lifecycle.admit_due():
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

    def ask_to_leave(self, entry: AppEntry) -> None:
        """Ask the app master to end, for a kill or a pause."""
        if entry.session is not None:
            message = pb.ShutDown(reason=entry.leave_reason, pause=not entry.kill_reason)
            entry.session.send(pb.RmMessage(shut_down=message))

    def kill_later(self, entry: AppEntry) -> None:
        """Ask the app master to end. Kill what still runs after `KILL_GRACE_S`, at once if none is connected.

        Then end the app.
        """
        self.ask_to_leave(entry)
        self._spawn(self._kill_after(entry, KILL_GRACE_S if entry.session is not None else 0.0))

    def pause_later(self, entry: AppEntry) -> None:
        """Ask the app master to end, and give it the time for checkpoints that an ending lease gives.

        Then kill what still runs, and pause the app.
        """
        self.ask_to_leave(entry)
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
                self.watch.resume()
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
        if self._quotas.look():
            self._spawn(self._admit_due())
        for entry, due in self.watch.due(but_for=self._being_checked):
            # In a task each: a kill may wait a minute for the machines of one app.
            self._being_checked.add(entry.app_id)
            self._spawn(self._act(entry, due))

    async def _act(self, entry: AppEntry, due: Due) -> None:
        try:
            if due is Due.NEXT_ATTEMPT:
                await self._start_delayed(entry)
            elif due is Due.LAUNCH:
                await self._start_again(entry)
            elif due is Due.UNUSED_LEASES:
                await self._revoke_overdue(entry, due.value)
            else:
                await self._take_by_force(entry, due.value)
        except ThemisError as error:
            # The engine is unavailable: nothing was revoked, and the next check tries again.
            LOG.warning("%s cannot be taken by force: %s", entry.app_id, error)
        except Exception:
            LOG.exception("%s cannot be taken by force", entry.app_id)
        finally:
            self._being_checked.discard(entry.app_id)

    async def _start_delayed(self, entry: AppEntry) -> None:
        self.watch.end_delay(entry.app_id)
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
        self.watch.resume()
        for entry in self._entries.active():
            # A master that registered with the former ResourceManager will again at once if it lives. Another one of
            # this attempt still starts.
            entry.registered_attempt = entry.attempt if entry.state is AppState.RUNNING else 0
            if entry.leave_reason:
                leave = partial(self._live_cluster.leave, app_id=entry.app_id, reason=entry.leave_reason)
                await self._changes.make_surely(leave)
            if entry.resting_view:
                # The former ResourceManager may have been gone before it ended the app master.
                self._end_leftover(entry.app_id)
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
            self.watch.note_start(entry)

    async def _recover_gone(self, entry: AppEntry) -> None:
        """Go on with an app of which nothing runs any more."""
        if entry.has_app_master and entry.attempt > entry.attempt_losses.counted:
            entry.attempt_losses = entry.attempt_losses.excused_up_to(entry.attempt)
            await self._lost(entry, "it was gone when the ResourceManager came back")
        elif entry.kill_reason:
            await self.lifecycle.end_surely(entry, AppState.KILLED, entry.kill_reason)
        elif entry.pause_reason:
            await self.lifecycle.pause_surely(entry)
        else:
            # It waited without an app master, or the former ResourceManager stopped before it could start the next one.
            if entry.has_app_master:
                entry.lost_attempt = entry.attempt
                self.watch.delay(entry)
            if not self.watch.is_delayed(entry.app_id):
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
        for entry in self.watch:
            if entry.session is not None:
                entry.session.close()
        await self._hosted.close()
        if not keep_apps:
            await self.launches.shutdown()

    def _keep_progress(self, change: Change) -> None:
        for entry in self.watch:
            change.put(entry)

    async def _launch(self, entry: AppEntry) -> None:
        await self._starts.turn(entry.app_id)
        attempt = entry.attempt
        if (leftover := self._leftovers.get(entry.app_id)) is not None:
            await leftover
        # Meanwhile the app may have been paused. After a pause and a resume, another start goes on, or has done so.
        if entry.attempt != attempt:
            return
        if not entry.is_admitted or entry.app_id in self._hosted or self._closing:
            self._starts.done(entry.app_id)
            return
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
                await self.lifecycle.end_surely(entry, AppState.FAILED, f"its app master could not be started: {error}")
            return
        if not is_launched or not entry.is_active or self._closing:
            self._starts.done(entry.app_id)
            if is_launched:
                # A kill ended it while it was being started.
                await self.launches.kill(entry.app_id)
            return
        self.watch.note_start(entry)

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
        if goes_on and not self.watch.is_delayed(entry.app_id):
            await self._launch_or_queue(entry)

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
            self.lifecycle.pause(change, entry)
            return False
        change.set(entry, lost_attempt=attempt, forced_reason="", last_seen_s=change.now_s)
        change.put(entry, attempt_losses=losses)
        if entry.kill_reason:
            self.lifecycle.end(change, entry, AppState.KILLED, entry.kill_reason)
        elif len(losses.failed_at_s) >= self.settings.am_max_attempts:
            diagnostics = f"its app master was lost {len(losses.failed_at_s)} times, at last: {reason}"
            self.lifecycle.end(change, entry, AppState.FAILED, diagnostics)
        else:
            # Within the change: a user may pause or kill the app before `_lost` goes on, which ends this pause.
            change.then(lambda: self.watch.delay(entry))
            return True
        return False

    def _losses(self, change: Change, entry: AppEntry, attempt: int, taken: Collection[int]) -> AttemptLosses:
        """Count the loss of attempts up to this one. While the engine was unavailable, they were lost to it."""
        return entry.attempt_losses.after(
            attempt,
            change.now_s,
            taken=taken,
            all_excused=self.watch.excuses_losses(change.now_s),
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
        await self.lifecycle.end_surely(entry, AppState.KILLED, entry.kill_reason or diagnostics)

    async def _revoke_overdue(self, entry: AppEntry, reason: str) -> None:
        late = self._arbiter.overdue(self._clock.now_s())
        ids = [lease.lease_id for lease in late if lease.app_id == entry.app_id]
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
        await self.lifecycle.end_surely(entry, AppState.KILLED, entry.kill_reason)

    async def _pause_after(self, entry: AppEntry, grace_s: float) -> None:
        lost_attempt = entry.lost_attempt
        await asyncio.sleep(grace_s)
        await self._kill_surely(entry.app_id, lambda: is_pausing(entry, lost_attempt))
        if is_pausing(entry, lost_attempt):
            await self.lifecycle.pause_surely(entry)

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

    def _spawn(self, work: Coroutine[Any, Any, object]) -> asyncio.Task[Any]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


def _close_session(entry: AppEntry) -> None:
    if entry.session is not None:
        entry.session.close()
        entry.session = None
