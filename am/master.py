"""The app master: runs an app's search on the GPUs that it is leased, and answers the ResourceManager's questions."""

from __future__ import annotations

import asyncio
import json
import logging
import math
import os
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, TypeVar

from am.app import App
from am.app_view import view_to_bytes
from am.context import AmContext
from am.engine import AmEngine
from am.jobs.job_runner import JobRunner
from am.jobs.planner import Plan, PlannedJob, make_plan
from am.jobs.run import JobRun
from am.journal import Journal
from am.lease_return import LeaseReturn
from am.log_archive import open_archive
from am.log_watch import LogWatch
from am.negotiator import Negotiator
from am.page.state import AmPageState, page_state
from am.runtimes.port import NoRoomError
from am.session import RmSession
from am.status import LossCurves, finish_message, heartbeat_message
from themis.clock import Clock
from themis.cluster import GpuId
from themis.errors import InputError, MissingHereError, ThemisError, UnreachableError
from themis.lifecycle import AppState, JobState
from themis.wire import themis_pb2 as pb

LOG = logging.getLogger("themis.am")

T = TypeVar("T")

_POLL_S = 0.2
_LINGER_S = 0.5
"""How long a GPU without a use is kept, since the next phase of the search may begin in a moment."""

_FAREWELL_S = 60.0
"""How long an app master that was asked to end waits for a ResourceManager that is unavailable, to report the end."""


class AttemptLostError(Exception):
    """This attempt cannot go on; the next one may. Not an end of the app."""


class UnusableAppError(Exception):
    """The ResourceManager's description of the app cannot be used by any attempt on any machine."""


class AppMaster:
    """One attempt of one app. `run` returns the process's exit code."""

    def __init__(self, context: AmContext, engine: AmEngine, clock: Clock) -> None:
        self._context = context
        self._engine = engine
        self._clock = clock
        self._journal = Journal(f"{context.kept_at}/journal.jsonl")
        self._archive = open_archive(context.folder, context.kept_at)
        self._session = RmSession(
            context.rm_address,
            self._register,
            self._on_message,
            clock=clock,
            give_up_s=context.rm_absence_s,
            trust=context.trust,
        )
        self._app: App | None = None
        self._jobs: JobRunner
        self._logs: LogWatch
        self._returns: LeaseReturn
        self._negotiator: Negotiator
        self._opening: asyncio.Future[None] | None = None
        self._held: list[pb.RmMessage] = []
        self._ready = asyncio.Event()
        self._dirty = asyncio.Event()
        self._ending = asyncio.Event()
        self._stop_reason = ""
        self._pausing = False
        self._leaving = False
        self._planned: Mapping[str, tuple[GpuId, ...]] = {}
        self._moving: Mapping[str, tuple[GpuId, ...]] = {}
        self._idle_since_s: dict[GpuId, float] = {}

    async def run(self) -> int:
        """Run until the search is over, the app is killed, or the ResourceManager stays away."""
        loop = asyncio.get_running_loop()
        await self._engine.start(self._page_state, self._progress)
        if self._archive is not None:
            await asyncio.to_thread(self._archive.restore)
        session = loop.create_task(self._session.run())
        work = loop.create_task(self._work())
        lost = loop.create_task(self._engine.lost())
        try:
            await asyncio.wait({session, work, lost}, return_when=asyncio.FIRST_COMPLETED)
            if work.done():
                return self._abandoned(work) if work.exception() else work.result()
            if lost.done():
                LOG.error("the engine has given this attempt up")
                return 1
            return self._abandoned(session)
        finally:
            for task in (work, session, lost):
                task.cancel()
            await asyncio.gather(work, session, lost, return_exceptions=True)
            await self._engine.close()
            if self._app is not None:
                self._jobs.close()
            await asyncio.to_thread(self._journal.close)

    def stop(self, reason: str, *, pause: bool = False) -> None:
        """End early: jobs checkpoint and stop. The app counts as killed, or with `pause` goes on later."""
        self._pausing = pause and (self._pausing or not self._stop_reason)
        self._stop_reason = self._stop_reason or reason
        self._ending.set()
        self._dirty.set()

    def end(self) -> None:
        """End after SIGTERM: with the app, or only this attempt (`AmEngine.stop_ends_app`)."""
        if not self._stop_reason:
            self._leaving = not self._engine.stop_ends_app
            self.stop("the app master was asked to end")

    # ---- the session ----

    def _register(self) -> pb.Register:
        held = [] if self._app is None else [lease.lease_id for lease in self._app.leases.values()]
        context = self._context
        return pb.Register(
            app_id=context.app_id,
            attempt=self._engine.attempt,
            token=context.token,
            held_lease_ids=held,
            pid=os.getpid(),
            page_url=self._engine.page_url,
            engine_id=self._engine.engine_id,
            has_code=self._app is not None,
        )

    def _on_message(self, message: pb.RmMessage) -> None:
        body = message.WhichOneof("body")
        if body == "registered":
            self._registered(message.registered)
        elif self._app is None:
            self._held.append(message)
        elif body == "ask_rho":
            self._answer(lambda: self._negotiator.report(message.ask_rho))
        elif body == "offer":
            self._answer(lambda: self._negotiator.bid(message.offer))
        elif body == "leases":
            self._app.take_leases(message.leases)
            self._dirty.set()
        elif body == "cluster":
            self._app.take_cluster(message.cluster)
            self._dirty.set()
        elif body == "acknowledge":
            self._acknowledged(self._app, message.acknowledge)
        elif body == "shut_down":
            self.stop(message.shut_down.reason, pause=message.shut_down.pause)
        elif body == "ask_rest":
            self._rest(self._app)

    def _answer(self, make: Callable[[], pb.AmMessage]) -> None:
        """Answer a question of a round. If that fails, the round goes on without the answer, and the jobs run on."""
        try:
            answer = make()
        except Exception:
            LOG.exception("a question of a round cannot be answered")
        else:
            self._session.send(answer)

    def _registered(self, message: pb.Registered) -> None:
        if self._app is not None:
            self._app.registered_again(message)
            self._dirty.set()
        elif self._opening is None:
            self._opening = asyncio.ensure_future(self._open(message))
        else:
            self._held.append(pb.RmMessage(registered=message))

    async def _open(self, message: pb.Registered) -> None:
        """Create the app, in a thread because its checkpoints may be remote. Messages wait meanwhile."""
        try:
            app = await asyncio.to_thread(self._take_up, message)
            self._logs = LogWatch(app, self._emit, self._dirty.set)
            await asyncio.to_thread(self._logs.catch_up)
            self._jobs = JobRunner(
                app, self._engine.runtime, self._emit, self._logs.drain, self._dirty.set, self._no_room
            )
            self._engine.runtime.kept.watch(self._dirty.set, self._not_prepared)
            self._returns = LeaseReturn(self._engine.runtime.kept, self._dirty.set)
            self._negotiator = Negotiator(app, lambda: self._planned)
            self._app = app
            app.search.on_turn = lambda job: self._emit("job_state", job.job_id, {"state": job.state.value})
            app.search.remeasure()
            self._registered(message)
            held, self._held = self._held, []
            for each in held:
                self._on_message(each)
        finally:
            self._ready.set()

    def _take_up(self, message: pb.Registered) -> App:
        """Return the app of a registration. Raises UnusableAppError if other attempts could not use it either."""
        try:
            return App(message, self._context.folder, self._context.kept_at, self._journal, self._clock)
        except MissingHereError:
            # The next attempt may run on a machine that has it.
            raise
        except InputError as error:
            raise UnusableAppError(str(error)) from error

    def _acknowledged(self, app: App, message: pb.Acknowledge) -> None:
        sent_at_s = self._session.sent_at_s.pop(message.of_id, None)
        if sent_at_s is not None:
            app.set_clock(sent_at_s, self._clock.now_s(), message.now_s)
        app.heartbeat_s = message.heartbeat_s or app.heartbeat_s
        if not math.isnan(message.contention):
            app.set_contention(contention=message.contention, active_apps=message.active_apps)

    def _rest(self, app: App) -> None:
        """Leave the app to the agent host, which ends this process, unless something of the app is left here."""
        if app.holds_nothing and not self._engine.runtime.kept.occupied() and app.search.plan().targets:
            self._session.send(pb.AmMessage(rest=pb.Rest(view=view_to_bytes(app.view({})))))

    def _emit(self, kind: str, job_id: str, detail: Mapping[str, object]) -> None:
        time_s = self._clock.now_s() if self._app is None else self._app.now_s()
        event = pb.JobEvent(job_id=job_id, kind=kind, time_s=time_s, detail=json.dumps(detail))
        self._session.send(pb.AmMessage(job_event=event))

    # ---- the work ----

    async def _work(self) -> int:
        await self._ready.wait()
        assert self._opening is not None
        try:
            await self._opening
        except UnusableAppError as error:
            LOG.exception("the app cannot be taken up")
            return await self._refused(str(error))
        app = self._app
        assert app is not None
        loop = asyncio.get_running_loop()
        background = [loop.create_task(self._poll_logs()), loop.create_task(self._beat(app))]
        if self._archive is not None:
            background.append(loop.create_task(self._archive.keep_on()))
        try:
            try:
                state, diagnostics = await _unless_one_fails(self._search(app), background)
            except ThemisError as error:
                LOG.exception("the app cannot go on")
                state, diagnostics = AppState.FAILED, str(error)
            # Together: what is known to end anyhow is not kept first.
            await asyncio.gather(self._returns.all(), self._jobs.stop_all(diagnostics or "the app ends"))
            is_left = self._leaving and state is AppState.KILLED
            goes_on = is_left or state is AppState.PAUSED
            if not goes_on:
                app.search.finish(JobState.KILLED if state is AppState.KILLED else JobState.STOPPED)
            if self._archive is not None:
                await self._archive.keep(last=not goes_on)
            if is_left:
                raise AttemptLostError(diagnostics)
            # In a thread, as it looks at the best job's checkpoint, which may lie far away.
            finish = await asyncio.to_thread(finish_message, app, state, diagnostics)
            await self._deliver(finish)
            await self._engine.finish(state, diagnostics)
            return 0 if state is AppState.FINISHED else 1
        finally:
            for task in background:
                task.cancel()
            await asyncio.gather(*background, return_exceptions=True)

    async def _refused(self, diagnostics: str) -> int:
        """End an app whose description cannot be used, before anything of it ran in this attempt."""
        finish = pb.Finish(state=AppState.FAILED.value, diagnostics=diagnostics)
        await self._deliver(finish)
        await self._engine.finish(AppState.FAILED, diagnostics)
        return 1

    async def _deliver(self, finish: pb.Finish) -> None:
        """Return once the ResourceManager has the end of the app.

        Raises:
            UnreachableError: It stayed away for `_FAREWELL_S` seconds after the app master was asked to end.
        """
        self._session.send(pb.AmMessage(finish=finish))
        loop = asyncio.get_running_loop()
        delivered, ending = loop.create_task(self._session.delivered()), loop.create_task(self._ending.wait())
        try:
            await asyncio.wait({delivered, ending}, return_when=asyncio.FIRST_COMPLETED)
            # Who asks it to end does not wait for hours, as an app that has ended may.
            async with asyncio.timeout(_FAREWELL_S):
                await delivered
        except TimeoutError:
            raise UnreachableError("the ResourceManager is unavailable", value=self._context.rm_address) from None
        finally:
            delivered.cancel()
            ending.cancel()

    async def _search(self, app: App) -> tuple[AppState, str]:
        """Follow the tuner's plan until it is finished; returns how the app ends, and why if not well."""
        reported: tuple[object, ...] = ()
        while True:
            if self._jobs.broken is not None:
                raise AttemptLostError("a job could not be settled") from self._jobs.broken
            if self._stop_reason:
                return AppState.PAUSED if self._pausing else AppState.KILLED, self._stop_reason
            if app.search.unreadable:
                return AppState.FAILED, app.search.unreadable
            plan = app.search.plan()
            if plan.finished:
                return _outcome(app)
            app.search.next_phase()
            news = (plan.phase, tuple(sorted(plan.targets)), app.search.best())
            if news != reported:
                reported = news
                self._report_plan(app)
            self._apply(app, self._make_plan(app))
            await self._dirty.wait()
            # Several changes often come together: one plan serves them all.
            await asyncio.sleep(0)
            self._dirty.clear()

    def _make_plan(self, app: App) -> Plan:
        app.fit_cluster()
        losers = app.search.settle_losers()
        targets = app.search.plan().targets
        view = app.view({})
        planned = [
            PlannedJob(
                view=job_view,
                gpus=app.search.jobs[job_view.job_id].gpus,
                stopping=bool(app.search.jobs[job_view.job_id].stop_reason)
                and app.search.jobs[job_view.job_id].running,
                loses_work=app.search.jobs[job_view.job_id].unsaved_stops > 0,
            )
            for job_view in view.jobs
        ]
        others = {job.job_id: job.gpus for job in self._running(app) if job.job_id not in targets or job in losers}
        return make_plan(planned, others, app.holdings(), app.cluster, app.restart_s, self._moving)

    def _apply(self, app: App, plan: Plan) -> None:
        jobs, holdings = app.search.jobs, app.holdings()
        # A job that grows works on until its new GPUs are ready, which the engine may not grant at all.
        preparing = {
            job_id
            for job_id, gpus in plan.prepare.items()
            if not self._jobs.prepare(jobs[job_id], gpus, holdings.granted)
        }
        for job_id, reason in plan.stop.items():
            if job_id not in preparing:
                self._jobs.stop(jobs[job_id], reason)
        for job_id, gpus in plan.start.items():
            self._jobs.start(jobs[job_id], gpus)
        for job_id, gpus in plan.move.items():
            self._jobs.prepare(jobs[job_id], gpus, holdings.granted)
        self._planned, self._moving = plan.expected, plan.move
        busy = {gpu for job in self._running(app) for gpu in job.gpus}
        self._returns.stay_only_on(holdings.granted)
        returned = [gpu for gpu in holdings.expiring if gpu not in busy]
        self._release(app, self._returns.free(returned), "its lease ended")
        self._release(app, self._returns.free(self._idle_long_enough(plan.release)), "no job can use it")

    def _idle_long_enough(self, gpus: tuple[GpuId, ...]) -> list[GpuId]:
        """Those of the GPUs without a use that have had none for a moment: jobs of a phase often end together."""
        loop = asyncio.get_running_loop()
        now_s = loop.time()
        self._idle_since_s = {gpu: self._idle_since_s.get(gpu, now_s) for gpu in gpus}
        idle_past_linger = [gpu for gpu, since_s in self._idle_since_s.items() if now_s - since_s >= _LINGER_S]
        if len(idle_past_linger) < len(gpus):
            loop.call_later(_LINGER_S, self._dirty.set)
        return idle_past_linger

    def _release(self, app: App, gpus: list[GpuId], reason: str) -> None:
        if gpus:
            release = pb.Release(lease_ids=app.give_back(gpus), reason=reason)
            self._session.send(pb.AmMessage(release=release))

    def _not_prepared(self, gpus: tuple[GpuId, ...], error: NoRoomError) -> None:
        """Give GPUs back whose prepared containers failed, unless a job has begun to start there."""
        assert self._app is not None
        busy = {gpu for job in self._running(self._app) for gpu in job.gpus}
        if busy.isdisjoint(gpus):
            self._no_room(gpus, error)

    def _no_room(self, gpus: tuple[GpuId, ...], error: NoRoomError) -> None:
        """Give GPUs back on which the engine could not start tasks, marked so that no app gets them at once."""
        assert self._app is not None
        ids = self._app.give_back(gpu for gpu in gpus if gpu in self._app.leases)
        release = pb.Release(lease_ids=ids, reason=str(error), no_room=True, headroom_gpus=error.headroom_gpus)
        self._session.send(pb.AmMessage(release=release))

    def _report_plan(self, app: App) -> None:
        plan = app.search.plan()
        detail = {
            "phase": plan.phase,
            "phases": plan.phase_count,
            "running": sorted(plan.targets),
            "stopped": sorted(plan.stopped),
            "best": app.search.best() or None,
        }
        self._emit("tuner", "", detail)

    def _page_state(self) -> AmPageState | None:
        return None if self._app is None else page_state(self._app, self._engine.attempt, self._planned)

    def _progress(self) -> float:
        return 0.0 if self._app is None else self._app.search.done_share()

    def _running(self, app: App) -> list[JobRun]:
        return [job for job in app.search.jobs.values() if job.running]

    async def _poll_logs(self) -> None:
        while True:
            self._logs.poll()
            self._jobs.handle_faults()
            await asyncio.sleep(_POLL_S)

    async def _beat(self, app: App) -> None:
        silent, curves = False, LossCurves()
        while True:
            try:
                heartbeat = heartbeat_message(app, app.view(self._planned), curves, self._engine.headroom_gpus)
            except Exception:
                # A heartbeat only reports. If it fails, the app continues, and tries again with the next one.
                if not silent:
                    LOG.exception("heartbeats cannot be made; they resume once one can")
                silent = True
            else:
                self._session.send(pb.AmMessage(heartbeat=heartbeat))
                silent = False
            await asyncio.sleep(app.heartbeat_s)

    def _abandoned(self, task: asyncio.Task[Any]) -> int:
        """The session ended for good: its tasks die with this process, which must not outlive its right to GPUs."""
        error = task.exception()
        if isinstance(error, UnreachableError):
            LOG.error("%s", error)
            return 1
        raise error or ThemisError("the session ended")


async def _unless_one_fails(work: Coroutine[None, None, T], others: Sequence[asyncio.Task[None]]) -> T:
    """The result of some work, beside which others run for ever: without one of them it would go on blind."""
    main = asyncio.ensure_future(work)
    try:
        await asyncio.wait({main, *others}, return_when=asyncio.FIRST_COMPLETED)
        for other in others:
            if other.done():
                other.result()
        return await main
    finally:
        main.cancel()


def _outcome(app: App) -> tuple[AppState, str]:
    """How a finished search ends: as FINISHED, with what is doubtful about it, unless it has no result.

    It has none if every job failed, or if none of several reported the metric that says which one is the best.
    """
    search = app.search
    if search.plan().best is not None:
        if search.compares and not search.has_read_metric:
            first = max(search.jobs.values(), key=lambda job: job.lines is not None and job.lines.lines_seen > 0)
            why = f"no metric was read, so no job is known to be the best: {first.job_id}: {first.lines_text()}"
            return AppState.FAILED, f"{why}; or write `metric: none`"
        doubts = [f"{job.job_id} {job.health}" for job in search.jobs.values() if job.short_of]
        if first_id := search.first_is_no_number():
            reason = f"the newest loss of {first_id} is NaN or infinite"
            if search.compares:
                reason += "; it ranks first, so no job is known to be the best"
            doubts.insert(0, reason)
        elif search.compares and not search.best():
            doubts.insert(0, "no job ended with a loss, so none is known to be the best")
        return AppState.FINISHED, "; ".join(doubts)
    failures = [f"{job.job_id}: {job.diagnostics}" for job in search.jobs.values() if job.diagnostics]
    return AppState.FAILED, "every job failed; the first: " + (failures[0] if failures else "unknown")
