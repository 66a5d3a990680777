"""When an app master stops a job: a job that diverged is given up, a job that stalls is restarted.

It uses only the profiler's facts. A job that never logged an iteration is left alone: its normal pace is unknown.
"""

from __future__ import annotations

from am.profiler.profile import JobProfile
from themis.apps import AppSpec
from themis.values import Value

ACT_ON_STALL_S = 600.0
"""The shortest stall that causes a restart, in seconds. The profiler reports stalls sooner. But a user's own program
may evaluate or write for minutes without logging, and a restart loses all work since its checkpoint. MapReduce waits as
long for a task without progress (`mapreduce.task.timeout`)."""

PATIENCE = 2.0
"""Factor on the wait before the next restart for a stall. So a program that was stopped during a long evaluation
completes it eventually, and from then on its length is known."""


class JobFault(Value, frozen=True, kw_only=True):
    """Why a job is stopped. An `unrecoverable` job is not restarted: it would fail in the same way again."""

    reason: str
    unrecoverable: bool


def limit_fault(profile: JobProfile, app: AppSpec) -> JobFault | None:
    """The fault of a job that has passed a limit of its group file. Returns None if it has not.

    It is unrecoverable, so the app master stops the job, which may save a checkpoint, and does not start it again.
    """
    if app.max_runtime_s and profile.ran_s > app.max_runtime_s:
        reason = f"it has run for {profile.ran_s:.0f} s, job.max_runtime_s is {app.max_runtime_s:g}"
        return JobFault(reason=reason, unrecoverable=True)
    if app.max_iterations and profile.logged > app.max_iterations:
        reason = f"it logged iteration {profile.logged}, job.max_iterations is {app.max_iterations}"
        return JobFault(reason=reason, unrecoverable=True)
    return None


def fault_of(profile: JobProfile, target: int, stalls: int = 0) -> JobFault | None:
    """The fault of a running job. Returns None if it has none.

    Args:
        profile: The facts from its log.
        target: The iteration that it runs to. After it a job may take its time, for example for a last evaluation.
        stalls: How often it was restarted for a stall.
    """
    diverged, stall = profile.diverged, profile.stall
    if diverged is not None:
        return JobFault(reason=f"its loss is no number since iteration {diverged.since_iteration}", unrecoverable=True)
    if stall is None or not profile.paces or profile.iteration >= target:
        return None
    if stall.waited_s < PATIENCE**stalls * max(ACT_ON_STALL_S, stall.allowed_s):
        return None
    return JobFault(reason=f"no iteration for {stall.waited_s:.0f} s", unrecoverable=False)
