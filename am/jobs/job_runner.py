"""Start and stop the tasks of jobs on GPUs, and report how each incarnation ended."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Coroutine, Mapping, Sequence

from am.app import App
from am.jobs.command import EXIT_USAGE, RunValues, job_command
from am.jobs.environment import JobIncarnation, task_environment
from am.jobs.fault_policy import fault_of, limit_fault
from am.jobs.gang import start_gang, wait_gang
from am.jobs.incarnation_marker import mark_incarnation
from am.jobs.node_cores import assigned_cores, device_of, node_cores
from am.jobs.pool import tasks_of
from am.jobs.run import JobRun
from am.jobs.saved_state import has_newer_checkpoint, newest_change_s
from am.profiler.records import Begun
from am.profiler.themis_format import parse_themis
from am.runtimes.port import (
    ContainerRuntime,
    ExitReason,
    NoRoomError,
    OnNoRoom,
    Seat,
    SeatRequest,
    TaskExit,
    TaskLaunch,
)
from themis.cluster import GpuId
from themis.errors import ThemisError
from themis.files import open_regular
from themis.lifecycle import JobState
from themis.speeds import speed_on
from themis.threads import Threads

LOG = logging.getLogger("themis.am.jobs")

EXIT_CHECKPOINTED = 75
"""A program's word for: stopped on request, work saved (EX_TEMPFAIL)."""

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.25, 30.0
"""Between an unrequested end of tasks and their restart; doubled with each restart, until an incarnation makes progress
and lasts for the longest pause. So a job that ends after each step is not restarted many times a minute for ever."""

_CHECKPOINT_CALLS = 8
_AT_ONCE_S = 30.0
"""A program that ends with exit code 2 later than this is not taken to have been called wrongly."""

Emit = Callable[[str, str, Mapping[str, object]], None]
Drain = Callable[[JobRun, bool], None]
OnChange = Callable[[], None]


class JobRunner:
    """Runs the jobs of one app.

    Args:
        app: The app.
        runtime: Where tasks run.
        emit: Sends an event.
        drain: Reads a job's log to its end. The argument is whether its tasks ended well.
        on_change: Called after every end of an incarnation.
        on_no_room: Called with leased GPUs on which the engine has no free capacity, and the error. It must give
            them back. The job may start on the others of its gang, if they are enough.
    """

    def __init__(
        self,
        app: App,
        runtime: ContainerRuntime,
        emit: Emit,
        drain: Drain,
        on_change: OnChange,
        on_no_room: OnNoRoom,
    ) -> None:
        self._app = app
        self._runtime = runtime
        self._emit = emit
        self._drain = drain
        self._on_change = on_change
        self._on_no_room = on_no_room
        self._reserving: dict[str, asyncio.Future[tuple[Seat, ...]]] = {}
        self.broken: Exception | None = None
        self._running: set[asyncio.Task[None]] = set()
        # Checkpoints may be on HDFS, which may be away.
        self._checkpoint_threads = Threads("checkpoints", _CHECKPOINT_CALLS)

    def start(self, job: JobRun, gpus: tuple[GpuId, ...]) -> None:
        """Start a waiting job on these GPUs."""
        level = self._app.cluster.level_of_gpus(gpus)
        job.stop_reason, job.stepped, job.startup, job.fault = "", False, {}, None
        job.short_of, job.started_from, job.reached = 0, job.saved_iteration, job.profile.iteration
        job.incarnation += 1
        job.started_at_s = self._app.now_s()
        self._app.search.turn(job, JobState.STARTING)
        # Only now: a job that may not start has no tasks that the end of the app would have to stop.
        job.gpus, job.level = gpus, level
        job.profile.started(len(gpus), job.level, self._app.cluster.machine(gpus[0].machine_id).device)
        self._spawn(self._run(job))

    def stop(self, job: JobRun, reason: str) -> None:
        """Ask a running job's tasks to checkpoint and end; calling it again changes nothing."""
        if not job.running or job.stop_reason:
            return
        job.stop_reason = reason
        if job.state is JobState.WAITING:
            # Between a crash and its restart nothing runs: its GPUs come free when the pause is over.
            return
        job.stop_asked_at_s = self._app.now_s()
        self._app.search.turn(job, JobState.CHECKPOINTING)
        if (reserving := self._reserving.get(job.job_id)) is not None:
            reserving.cancel()
        for handle in job.handles:
            self._spawn(self._stop_task(handle))

    def prepare(self, job: JobRun, gpus: tuple[GpuId, ...], granted: frozenset[GpuId]) -> bool:
        """Prepare seats on GPUs on which the job will presumably start soon, as far as they are granted.

        Returns whether there is nothing to wait for before the job stops for these GPUs.
        """
        return self._runtime.kept.prepare(self._requests(job, gpus), granted)

    def handle_faults(self) -> None:
        """Stop jobs that have diverged, to give them up, and those that stall, to start them again."""
        for job in self._app.search.jobs.values():
            if not job.handles or job.fault is not None:
                continue
            fault = fault_of(job.profile, self._target(job), job.stalls) or limit_fault(job.profile, self._app.spec)
            # One that is being stopped anyhow needs no other reason, unless it must not start again.
            if fault is not None and (fault.unrecoverable or not job.stop_reason):
                job.fault = fault
                self.stop(job, fault.reason)

    async def stop_all(self, reason: str) -> None:
        """Stop every job and return when nothing runs any more."""
        for job in self._app.search.jobs.values():
            self.stop(job, reason)
        while self._running and any(job.running for job in self._app.search.jobs.values()):
            await asyncio.wait(set(self._running))

    def close(self) -> None:
        """End the threads that look at checkpoints, once their calls have returned. Nothing may run any more."""
        self._checkpoint_threads.close()

    # ---- one incarnation ----

    async def _run(self, job: JobRun) -> None:
        try:
            await self._run_incarnation(job)
        except Exception as error:
            # The journal cannot be written, perhaps. Only another attempt can continue.
            LOG.exception("%s cannot be settled", job.job_id)
            self.broken = error
        finally:
            job.gpus = ()
            self._on_change()

    async def _run_incarnation(self, job: JobRun) -> None:
        no_room: NoRoomError | None = None
        full = job.gpus
        try:
            exits = await self._run_tasks(job)
        except NoRoomError as error:
            LOG.warning("%s: %s", job.job_id, error)
            no_room, full, exits = error, error.gpus or full, []
        except Exception as error:
            # Whatever it was: a job that is stuck would hold its GPUs for good.
            LOG.exception("%s could not be started", job.job_id)
            job.diagnostics = str(error)
            exits = []
        self._drain(job, _ended_well(exits))
        gpus, requested = job.gpus, bool(job.stop_reason)
        job.saved_iteration = await self._checkpoint_threads.run(self._saved_iteration, job)
        job.handles = []
        self._examine(job, requested=requested)
        if requested and job.fault is None:
            job.stop_took_s, job.moved_from = self._app.now_s() - job.stop_asked_at_s, len(gpus)
            saved = await self._checkpoint_threads.run(has_newer_checkpoint, self._app, job)
            if not job.stepped and (self._app.tells_steps or job.startup):
                # It had nothing new to save.
                self._cut_short(job)
            elif not saved and job.job_id in self._app.search.plan().targets:
                self._stopped_unsaved(job)
        detail = {
            "incarnation": job.incarnation,
            "gpus": [str(gpu) for gpu in gpus],
            "exit_codes": [exit_.exit_code for exit_ in exits],
            "requested": requested,
            "iteration": job.saved_iteration,
        }
        self._emit("tasks_ended", job.job_id, detail)
        if no_room and not requested:
            # The job is not at fault: it waits for GPUs on machines with free capacity.
            self._app.search.turn(job, JobState.WAITING)
            self._on_no_room(full, no_room)
        else:
            self._settle(job, exits, requested)
        if job.pauses and job.state is JobState.WAITING and not no_room:
            # What made it end may pass. Its GPUs stay its own for the moment.
            await asyncio.sleep(min(_LONGEST_PAUSE_S, _FIRST_PAUSE_S * 2 ** (job.pauses - 1)))

    def _examine(self, job: JobRun, *, requested: bool) -> None:
        """Note what an incarnation achieved, now that all of its log is read."""
        if job.saved_iteration > job.started_from:
            job.unsaved_stops = 0
        lasted_s = self._app.now_s() - job.launched_at_s
        if requested or (job.profile.iteration > job.reached and lasted_s >= _LONGEST_PAUSE_S):
            job.pauses = 0
        if job.fault is None and job.profile.diverged is not None:
            # Perhaps its last words say so. It would diverge again.
            job.fault = fault_of(job.profile, self._target(job), job.stalls)

    def _stopped_unsaved(self, job: JobRun) -> None:
        """Count a stop that left no newer checkpoint."""
        job.unsaved_stops += 1
        detail = {"incarnation": job.incarnation, "iteration": job.saved_iteration, "stops": job.unsaved_stops}
        self._emit("stop_unsaved", job.job_id, detail)

    def _cut_short(self, job: JobRun) -> None:
        """Note that its tasks were stopped before their first step, so that their start was useless.

        Ignores programs that log no steps: these would seem to start for as long as each lease lasts.
        """
        seconds = job.stop_asked_at_s - job.started_at_s
        self._app.start_cut_short(seconds)
        self._emit("start_cut_short", job.job_id, {"incarnation": job.incarnation, "seconds": seconds})

    async def _run_tasks(self, job: JobRun) -> list[TaskExit]:
        seats = await self._reserve(job)
        if seats is None:
            return []
        launches = self._launches(job, seats)
        if self._app.spec.program.command:
            job.files_changed_s = await self._checkpoint_threads.run(newest_change_s, self._app, job)
        mark_incarnation(job.log_path, job.incarnation)
        job.handles = await start_gang(self._runtime, launches)
        job.launched_at_s = self._app.now_s()
        if job.stop_reason:
            # It was stopped during its start, before any task could get the signal.
            for handle in job.handles:
                self._spawn(self._stop_task(handle))
        detail = {
            "incarnation": job.incarnation,
            "gpus": [str(gpu) for gpu in job.gpus],
            "tasks": len(launches),
            "level": job.level.label,
            "iteration": job.saved_iteration,
            "target": self._target(job),
            "pids": [handle.pid for handle in job.handles],
            "reused": sum(seat.reused for seat in seats),
            "seconds": dict(seats[0].seconds),
        }
        self._emit("tasks_started", job.job_id, detail)
        return await wait_gang(
            self._runtime,
            job.handles,
            peer_wait_s=self._app.spec.peer_wait_s,
            # At its end a chief may have to wait for room for its model, and says so now and then.
            progress=lambda: job.profile.step_changes + job.failed_saves,
        )

    async def _reserve(self, job: JobRun) -> tuple[Seat, ...] | None:
        """Return seats for the gang, or None if the job was stopped while it waited for them."""
        reserving = asyncio.ensure_future(self._runtime.reserve(self._requests(job, job.gpus)))
        self._reserving[job.job_id] = reserving
        try:
            return await reserving
        except asyncio.CancelledError:
            if not job.stop_reason:
                raise
            return None
        finally:
            del self._reserving[job.job_id]

    def _requests(self, job: JobRun, gpus: tuple[GpuId, ...]) -> list[SeatRequest]:
        """The room of each task of a job on these GPUs."""
        resources = self._app.spec.resources
        return [
            SeatRequest(
                job_id=job.job_id,
                task_index=index,
                gpus=each,
                memory_mb=resources.memory_mb,
                vcores=resources.vcores,
                node_cores=node_cores(self._app.cluster, each[0].machine_id),
                cores=assigned_cores(self._app.cluster, each[0].machine_id, self._runtime.cores),
            )
            for index, each in enumerate(tasks_of(gpus, job.spec.shape.gpus_per_task))
        ]

    async def _stop_task(self, handle: object) -> None:
        await self._runtime.stop(handle, self._app.grace_s)  # type: ignore[arg-type]

    def _settle(self, job: JobRun, exits: Sequence[TaskExit], requested: bool) -> None:
        search = self._app.search
        done = bool(exits) and (_all_succeeded(exits) or (not requested and _peers_waited_for(exits)))
        if done and job.job_id in search.plan().targets:
            search.target_reached(job)
        elif job.fault is not None and job.job_id in search.plan().targets:
            job.stalls += not job.fault.unrecoverable
            self._again(job, job.fault.reason, unrecoverable=job.fault.unrecoverable)
        elif requested:
            search.turn(job, JobState.WAITING)
        elif _ended_well(exits) and job.profile.iteration > job.reached:
            self._restarted(job, "it ended unasked with exit code 75, but further than before")
        elif any(exit_.reason is ExitReason.TAKEN for exit_ in exits):
            self._restarted(job, "the engine took a container of it away")
        else:
            self._crashed(job, exits)

    def _crashed(self, job: JobRun, exits: Sequence[TaskExit]) -> None:
        codes = [exit_.exit_code for exit_ in exits]
        reason = f"tasks ended with {codes}" if exits else f"it could not be started: {job.diagnostics}"
        if any(exit_.reason is ExitReason.MEMORY for exit_ in exits):
            reason = f"a task used more than {self._app.spec.resources.memory_mb} MB"
        elif exits and all(exit_.exit_code == 0 or exit_.reason is ExitReason.STOPPED for exit_ in exits):
            wait_s = self._app.spec.peer_wait_s
            reason = f"a task ended with 0, and the others made no progress in the next {wait_s:g} s"
        # Any program may end with 2 in the middle of its work, `make` for example does.
        at_once = job.profile.iteration == 0 and self._app.now_s() - job.launched_at_s < _AT_ONCE_S
        usage = (
            at_once
            and bool(exits)
            and all(code in (EXIT_USAGE, -15, EXIT_CHECKPOINTED) for code in codes)
            and EXIT_USAGE in codes
        )
        # Where no task ran, the log's last words are those of an earlier incarnation.
        last = last_line(job) if exits else ""
        self._again(job, reason, unrecoverable=usage, last_words=f": {last}" if last else "")

    def _again(self, job: JobRun, reason: str, *, unrecoverable: bool, last_words: str = "") -> None:
        """Restart a job whose tasks have ended from its checkpoint, or give it up."""
        if unrecoverable or job.restarts >= self._app.spec.max_task_restarts:
            self._app.search.failed(job, f"{reason}{last_words}")
            self._emit("job_given_up", job.job_id, {"reason": reason, "restarts": job.restarts})
            return
        job.restarts += 1
        self._restarted(job, reason)

    def _restarted(self, job: JobRun, reason: str) -> None:
        job.restarted_for = reason
        job.pauses += 1
        self._app.search.turn(job, JobState.WAITING)
        self._emit("job_restarted", job.job_id, {"reason": reason, "restarts": job.restarts})

    # ---- launching ----

    def _launches(self, job: JobRun, seats: Sequence[Seat]) -> list[TaskLaunch]:
        app = self._app
        tasks = tasks_of(job.gpus, job.spec.shape.gpus_per_task)
        device = device_of(app.cluster, job.gpus[0].machine_id)
        emulated = not device.has_card
        nodes = [gpus[0].machine_id for gpus in tasks]
        cores = [assigned_cores(app.cluster, node, self._runtime.cores) for node in nodes]
        threads = [len(own) or node_cores(app.cluster, node) for node, own in zip(nodes, cores, strict=True)]
        gang = JobIncarnation(
            app_id=app.app_id,
            job_id=job.job_id,
            incarnation=job.incarnation,
            gpus=tasks,
            addresses=tuple(seat.address for seat in seats),
            level=job.level,
            checkpoint_uri=app.checkpoint_uri,
            job_dir=str(job.folder),
            time_scale=app.time_scale if app.spec.replay else 1.0,
            emulated=emulated,
            device=device.name,
            speed=speed_on(job.spec, device),
            threads=() if device.is_gpu else tuple(threads),
            environment=app.spec.program.environment,
            framework=app.spec.program.framework,
            most_tasks=job.spec.shape.tasks,
            submitted_at_s=app.submitted_at_s,
            tracked_run=job.profile.tracked_run,
        )
        command = job_command(app.spec.program, job.spec, self._values(job))
        return [
            TaskLaunch(
                app_id=app.app_id,
                job_id=job.job_id,
                task_index=index,
                incarnation=job.incarnation,
                command=command,
                environment=task_environment(gang, index),
                seat=seat,
                gpus=gpus,
                emulated=emulated,
                cores=cores[index],
                working_dir=job.folder,
                log_path=job.task_log(index),
                memory_mb=app.spec.resources.memory_mb,
                vcores=app.spec.resources.vcores,
                code=app.code,
            )
            for index, (gpus, seat) in enumerate(zip(tasks, seats, strict=True))
        ]

    def _values(self, job: JobRun) -> RunValues:
        spec = self._app.spec
        return RunValues(
            iterations=self._target(job),
            checkpoint_every=spec.checkpoint_every,
            keep_checkpoints=spec.keep_checkpoints,
            seed=spec.seed,
            # A program of the user's own knows nothing of our folders by job: each job gets its own path.
            paths=dict.fromkeys(("checkpoint_path", "checkpoint_uri"), f"{self._app.checkpoint_uri}/{job.job_id}"),
        )

    def _target(self, job: JobRun) -> int:
        return self._app.search.plan().targets.get(job.job_id, job.spec.iterations_total)

    def _saved_iteration(self, job: JobRun) -> int:
        try:
            return self._app.store.latest_iteration(job.job_id) or 0
        except ThemisError as error:
            # What was known of it before is there still; the next start looks again.
            LOG.warning("%s: its checkpoints cannot be looked at: %s", job.job_id, error)
            return job.saved_iteration

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._running.add(task)
        task.add_done_callback(self._running.discard)


def _ended_well(exits: Sequence[TaskExit]) -> bool:
    """Whether tasks came to their end, or to a checkpoint, by themselves."""
    return bool(exits) and all(exit_.exit_code in (0, EXIT_CHECKPOINTED) for exit_ in exits)


def _all_succeeded(exits: Sequence[TaskExit]) -> bool:
    return all(exit_.succeeded for exit_ in exits)


def _peers_waited_for(exits: Sequence[TaskExit]) -> bool:
    """Whether the chief succeeded, and the gang was stopped because the others went on for too long after it."""
    return exits[0].succeeded and all(exit_.succeeded or exit_.reason is ExitReason.STOPPED for exit_ in exits)


def last_line(job: JobRun) -> str:
    """The last line that a job's chief wrote, for diagnostics; empty if this incarnation wrote nothing.

    Its lines come after its mark. If the end of the log contains no mark, all lines there are this incarnation's.
    """
    try:
        with os.fdopen(open_regular(job.log_path, os.O_RDONLY), "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - 4096))
            lines = file.read().decode("utf-8", errors="replace").split("\n")
    except OSError:
        return ""
    last = ""
    for line in reversed(lines):
        if isinstance(mark := parse_themis(line), Begun):
            return last if mark.incarnation == job.incarnation else ""
        last = last or line.strip()[:300]
    return last
