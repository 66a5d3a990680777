"""The state of an app's search: its jobs, tuner and journal. What was learnt goes in, what should run comes out.

It does no I/O but the journal's and never starts anything: the app master reads `plan` and acts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path

from am.app_view import DEFAULT_LEASE_S, REESTIMATE, JobProgress, work_gpu_s, work_seen_gpu_s
from am.jobs.run import JobRun
from am.journal import JobRecord, Journal
from am.profiler.follower import LogFollower
from am.profiler.health import COUNTING_WAIT_S
from am.profiler.profile import JobProfile, Measurements
from am.tuners.port import Observation, ObservationKind, Phase, Tuner, TunerPlan
from am.tuners.registry import make_tuner
from themis.apps import AppSpec, Estimate, JobSpec
from themis.cluster import Cluster
from themis.config.tuner_settings import SINGLE
from themis.lifecycle import JOB_LIFECYCLE, JobState
from themis.speeds import SAME_SPEED, Speeds, speeds_in
from themis.sums import sum_in_order

_SILENT_S, _SILENT_BESIDE_OTHERS_S = 45.0, 120.0
"""Seconds that a job may run without a known pace before it counts as silent; the second if others of its app report.

A job that has hardly run had no time to report. If it counted as a long one, a new app would wait for all others. Half
a lease is time enough: it counts as silent before the round that decides on its next lease.
"""

_WORK_NOTE = "work_total"

_BEFORE_THE_END = {JobState.KILLED: JobState.WAITING, JobState.FINISHED: JobState.PHASE_DONE}
"""The state of a job before it ended with its app (`SearchState.finish`)."""

_LONGER = 1.1
"""A wait is journaled if it is this many times longer than the one journaled last."""

SavedIteration = Callable[[str], int | None]


class SearchState:
    """Jobs by id, and the search over them.

    Args:
        spec: The app.
        folder: The app's folder; each job has its own under `jobs/`.
        time_scale: How many times faster than their estimate replayed jobs run.
        journal: Its entries by earlier attempts are restored; later changes are appended.
        saved_iteration: The iteration of a job's newest checkpoint.
        lease_s: Seconds of a lease.

    `on_turn` is called on every change of a job's state.
    """

    def __init__(
        self,
        spec: AppSpec,
        folder: Path,
        time_scale: float,
        journal: Journal,
        saved_iteration: SavedIteration,
        lease_s: float = DEFAULT_LEASE_S,
    ) -> None:
        self.on_turn: Callable[[JobRun], None] = lambda _: None
        self.spec = spec
        self.tuner: Tuner = make_tuner(spec.tuner, spec.jobs)
        self._plan = self.tuner.plan()
        self.first_phases: tuple[Phase, ...] = self._plan.phases
        self._journal = journal
        self.lease_s = lease_s
        estimate = _scaled(spec.estimate, time_scale if spec.replay else 1.0)
        self.jobs: dict[str, JobRun] = {}
        for job in spec.jobs:
            job_folder = folder / "jobs" / job.job_id
            self.jobs[job.job_id] = JobRun(
                spec=job,
                folder=job_folder,
                profile=JobProfile(estimate),
                follower=LogFollower(job_folder / "task-0.log"),
                metric=spec.metric,
            )
        self.work_total_gpu_s = work_gpu_s(self.progress(), self.first_phases)
        self._measured = False
        self._stated_speeds: dict[str, Speeds] = {}
        # By stated speeds: the job that measured the most types among those that state them, and whose pace counts.
        self._measuring: dict[Speeds, str] = {}
        self._unreadable = ""
        self._waits_s: dict[str, float] = {}
        self._measurements: dict[str, Measurements] = dict(journal.content.measurements)
        self._take_up(saved_iteration)

    def fit_cluster(self, cluster: Cluster) -> None:
        """Set each job's speed by device type: the stated one or that of the cluster, then the measured one."""
        self._stated_speeds = {job_id: _assumed_speeds(job.spec, cluster) for job_id, job in self.jobs.items()}
        for job_id, job in self.jobs.items():
            job.profile.assume_pace(self._stated_speeds[job_id])
        self._measuring = {}
        for job in self.jobs.values():
            if job.profile.has_steady_pace:
                self._share_pace(job)

    # ---- reading ----

    def plan(self) -> TunerPlan:
        """Return the tuner's current plan."""
        return self._plan

    def best(self) -> str:
        """The best job so far, empty if none is known to be.

        Of several jobs only one with a loss is the best. A job that reports nothing at all is never the best, and
        neither is one whose newest loss is NaN or infinite, unless no metric is wanted.
        """
        job = self.jobs.get(self.plan().best or "")
        if job is None:
            return ""
        read = self.spec.metric.wanted and job.read_metric
        alone = len(self.jobs) == 1 and not (job.reports_nothing or read)
        return job.job_id if math.isfinite(job.loss) or alone else ""

    def first_is_no_number(self) -> str:
        """The job that ranks first if a metric is wanted and its newest is NaN or infinite, else an empty text."""
        job = self.jobs.get(self.plan().best or "") if self.spec.metric.wanted else None
        return job.job_id if job is not None and job.read_metric and not math.isfinite(job.loss) else ""

    def progress(self) -> Mapping[str, JobProgress]:
        """Return every job as the agent sees it."""
        any_pace = any(job.profile.serial_iteration_s is not None for job in self.jobs.values())
        silent_s = _SILENT_BESIDE_OTHERS_S if any_pace else min(_SILENT_S, self.lease_s / 2)
        took_s = [
            JobProgress(spec=job.spec, profile=job.profile, ended=True).serial_iteration_s
            for job in self.jobs.values()
            if _has_ended(job)
        ]
        siblings_s = sum_in_order(took_s) / len(took_s) if took_s else None
        return {
            job_id: JobProgress(
                spec=job.spec,
                profile=job.profile,
                ended=_has_ended(job),
                silent=job.profile.ran_gpu_s > silent_s * job.spec.shape.demand_min_gpus,
                siblings_iteration_s=siblings_s,
                lease_s=self.lease_s,
            )
            for job_id, job in self.jobs.items()
        }

    def done_share(self) -> float:
        """Share of the search's work that is done, 0 to 1. If every job failed, all that they had to do counts.

        Of a job that goes on past its target nothing is left, though it is valued as if an iteration were.
        """
        plan = self.plan()
        if plan.finished and plan.best is not None:
            return 1.0
        progress = self.progress()
        done = sum_in_order(job.iterations_done * job.serial_iteration_s for job in progress.values())
        if plan.finished:
            work = sum_in_order(job.spec.iterations_total * job.serial_iteration_s for job in progress.values())
        else:
            past = [
                progress[job_id]
                for job_id, target in plan.targets.items()
                if progress[job_id].iterations_done >= target
            ]
            work = work_seen_gpu_s(progress, plan) - sum_in_order(job.serial_iteration_s for job in past)
        return min(1.0, done / max(work, 1e-9))

    # ---- what happened ----

    def turn(self, job: JobRun, state: JobState) -> None:
        """Change a job's state, and journal it."""
        job.turn(state)
        self._journal.job(job.record())
        self.on_turn(job)

    @staticmethod
    def target_of(job: JobRun, plan: TunerPlan) -> int:
        """Return a job's target iteration, or its last one. For a job that failed or never began: its whole length."""
        target = plan.targets.get(job.job_id) or job.short_of
        if target:
            return target
        if job.state is JobState.FAILED or not job.profile.iteration:
            return job.spec.iterations_total
        done = job.profile.iteration
        return done if job.spec.has_no_length else min(done, job.spec.iterations_total)

    @property
    def unreadable(self) -> str:
        """Why the search cannot go on: a job reached its target, and no job has reported a metric. Empty if it can."""
        return self._unreadable

    @property
    def compares(self) -> bool:
        """Whether its jobs must report a metric, because it says which of them is the best."""
        return self.spec.metric.wanted and len(self.jobs) > 1

    @property
    def has_read_metric(self) -> bool:
        """Whether any job has ever reported a loss or the declared metric."""
        return any(job.read_metric for job in self.jobs.values())

    def target_reached(self, job: JobRun) -> None:
        """Note that all tasks of a job exited with 0. For the tuner this is the end of its run.

        If the tuner chooses among jobs and no job has reported a metric by then, the tuner is not asked: it would
        choose by job id. The search is `unreadable` from then on.

        But it has done the iterations only if its log or a checkpoint says so. A program that stops early has ended,
        and so has one whose failure the shell hides (`train | tee log`): it keeps the iteration that it reported.
        """
        if self.compares and self.tuner.name != SINGLE and not self.has_read_metric:
            self._unreadable = f"no metric was read by the target of {job.job_id}: {job.lines_text()}"
            self.turn(job, JobState.PHASE_DONE)
            return
        target = self.plan().targets[job.job_id]
        if job.profile.reports_reached(target, job.saved_iteration):
            job.profile.reach(target)
        else:
            job.short_of = target
        self._observe(job, ObservationKind.TARGET_REACHED, at_least=target)
        self.turn(job, JobState.PHASE_DONE)
        if not JobProgress(spec=job.spec, profile=job.profile).pace_known:
            # Its end is the first measurement of a silent job.
            self._set_work(work_seen_gpu_s(self.progress(), self.plan()))

    def progressed(self, job: JobRun) -> bool:
        """Handle new losses of a job. Its pace may change speeds and B. Returns whether the tuner stopped a job."""
        stopped = self.plan().stopped
        self._observe(job, ObservationKind.PROGRESS)
        if job.profile.has_steady_pace:
            self._share_pace(job)
        self.remeasure()
        return self.plan().stopped != stopped

    def keep_measurements(self, job: JobRun) -> None:
        """Journal what the next attempt uses of a job's log, if it is news.

        These are its longest wait for a step, whether it reports a metric, and its pace.
        """
        longest_s = job.profile.longest_wait_s
        is_longer = longest_s > max(COUNTING_WAIT_S, _LONGER * self._waits_s.get(job.job_id, 0.0))
        if is_longer or job.read_metric != job.read_metric_before:
            self._waits_s[job.job_id] = longest_s
            job.read_metric_before = job.read_metric
            self._journal.job(job.record())
        measurements = job.profile.measurements(job.spec.iterations_total)
        if measurements.is_news(self._measurements.get(job.job_id, Measurements())):
            self._measurements[job.job_id] = measurements
            self._journal.measurements(job.job_id, measurements)

    def failed(self, job: JobRun, diagnostics: str) -> None:
        """Give up a job for good."""
        job.diagnostics = diagnostics
        self._observe(job, ObservationKind.FAILED)
        self.turn(job, JobState.FAILED)

    def settle_losers(self) -> list[JobRun]:
        """Set the final state of jobs that the tuner stopped. Returns those of them that still run."""
        running = []
        for job_id in sorted(self.plan().stopped):
            job = self.jobs[job_id]
            if _is_over(job):
                continue
            if job.running:
                running.append(job)
            else:
                self.turn(job, JobState.STOPPED)
        return running

    def next_phase(self) -> None:
        """Let promoted jobs, and losers that the tuner reinstated, wait for their next run."""
        for job_id in self.plan().targets:
            job = self.jobs[job_id]
            if job.state in (JobState.PHASE_DONE, JobState.STOPPED):
                self.turn(job, JobState.WAITING)

    def finish(self, state: JobState) -> None:
        """Set the final state of every job at the end of the search, also of those that the tuner stopped last."""
        self.settle_losers()
        for job in self.jobs.values():
            if _is_over(job):
                continue
            self.turn(job, JobState.FINISHED if job.state is JobState.PHASE_DONE else state)

    def remeasure(self) -> None:
        """Update B, the work of the search. The first steady pace sets it; other measurements only raise it."""
        seen = work_seen_gpu_s(self.progress(), self.plan())
        if not self._measured and any(job.profile.has_steady_pace for job in self.jobs.values()):
            self._measured = True
            self._set_work(seen)
        elif seen > REESTIMATE * self.work_total_gpu_s:
            self._set_work(seen)

    # ---- inside ----

    def _set_work(self, work_gpu_s: float) -> None:
        self.work_total_gpu_s = work_gpu_s
        self._journal.note(_WORK_NOTE, {"gpu_s": work_gpu_s, "measured": self._measured})

    def _share_pace(self, job: JobRun) -> None:
        """Give a job's measured pace and speeds to the jobs that state the same speeds and have not measured their own.

        Example: all jobs of a search state 0.1 s an iteration, k80: 1 and v100: 9. One of them ran on both types, and
        took 0.6 s on k80 and 0.2 s on v100. The jobs that wait then assume 0.6 s and a speed of 3 too, so the app's
        next report has the right work and speeds. Both go together, because speeds are in units of the type that the
        job ran on first.

        Jobs differ a little, so one of them counts: the one that measured most types, of several the first that did.
        """
        stated = self._stated_speeds.get(job.job_id, SAME_SPEED)
        known = self.jobs[self._measuring.setdefault(stated, job.job_id)]
        if known is not job and len(job.profile.measured_devices) <= len(known.profile.measured_devices):
            return
        self._measuring[stated] = job.job_id
        speeds = job.profile.speeds()
        # The steps of a job without a length say nothing of its one iteration.
        iteration_s = None if job.spec.has_no_length else job.profile.serial_iteration_s
        for other in self.jobs.values():
            alike = other is not job and self._stated_speeds.get(other.job_id, SAME_SPEED) == stated
            if alike and not other.profile.measured_devices:
                other.profile.assume_pace(speeds, None if other.spec.has_no_length else iteration_s)

    def _observe(self, job: JobRun, kind: ObservationKind, at_least: int = 0) -> None:
        """Journal an observation before the tuner gets it. The job's state follows from it, so it is written later."""
        iteration = max(at_least, job.profile.iteration)
        observation = Observation(kind=kind, job_id=job.job_id, iteration=iteration, loss=job.loss)
        self._journal.observation(observation)
        self.tuner.observe(observation)
        self._plan = self.tuner.plan()

    def _take_up(self, saved_iteration: SavedIteration) -> None:
        """Restore the search of earlier attempts. No job runs, because tasks end with their app master."""
        work = self._journal.content.notes.get(_WORK_NOTE)
        if work is not None:
            self.work_total_gpu_s, self._measured = work["gpu_s"], work["measured"]
        failed = set()
        for observation in self._journal.content.observations:
            self.tuner.observe(observation)
            job = self.jobs[observation.job_id]
            job.loss_before = observation.loss
            # Journals of earlier versions show only by their losses that one was read.
            job.read_metric_before = job.read_metric_before or not math.isnan(observation.loss)
            if observation.kind is ObservationKind.FAILED:
                failed.add(observation.job_id)
            elif observation.kind is ObservationKind.TARGET_REACHED:
                job.earlier_targets.append(observation.iteration)
        for job_id, measurements in self._measurements.items():
            self.jobs[job_id].profile.remember(measurements)
        plan = self._plan = self.tuner.plan()
        for job_id, record in self._journal.content.jobs.items():
            job = self.jobs[job_id]
            job.incarnation, job.restarts, job.stalls = record.incarnation, record.restarts, record.stalls
            job.profile.remember_wait(record.longest_wait_s)
            self._waits_s[job_id] = record.longest_wait_s
            job.short_of, job.unsaved_stops = record.short_of, record.unsaved_stops
            job.read_metric_before = job.read_metric_before or record.read_metric
            job.diagnostics = record.diagnostics
            job.saved_iteration = saved_iteration(job_id) or 0
            # Its log may be on a machine that can no longer be read.
            job.profile.reach(job.saved_iteration)
            job.state = JobState.FAILED if job_id in failed else _taken_up(record, plan)


def _taken_up(record: JobRecord, plan: TunerPlan) -> JobState:
    """Return the state of a job that had not failed when its app master ended.

    A job that ended with its app goes on: the former attempt wrote that, but its last message did not arrive.
    """
    if record.state in _BEFORE_THE_END:
        return _BEFORE_THE_END[record.state]
    if record.state not in (JobState.STARTING, JobState.RUNNING, JobState.CHECKPOINTING):
        return record.state
    # A job without a target that the tuner did not stop has reached its target. Its state was not journaled any more.
    done = record.job_id not in plan.targets.keys() | plan.stopped
    return JobState.PHASE_DONE if done else JobState.WAITING


def _is_over(job: JobRun) -> bool:
    """Whether a job does not go on, unless the tuner reinstates it."""
    return job.state is JobState.STOPPED or JOB_LIFECYCLE.is_final(job.state)


def _has_ended(job: JobRun) -> bool:
    return job.state in (JobState.PHASE_DONE, JobState.FINISHED)


def _scaled(estimate: Estimate, time_scale: float) -> Estimate:
    if estimate.serial_iteration_s is None:
        return estimate
    return Estimate(serial_iteration_s=estimate.serial_iteration_s / time_scale, slowdown=estimate.slowdown)


def _assumed_speeds(job: JobSpec, cluster: Cluster) -> Speeds:
    # With several types each is named, even if all have speed 1: measured speeds replace them one by one.
    speeds = speeds_in(job, cluster)
    if speeds is not SAME_SPEED or not cluster.has_types:
        return speeds
    return Speeds.of([(device.name, 1.0) for device in cluster.present_devices])
