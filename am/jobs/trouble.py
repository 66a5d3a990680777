"""What an app master does about a job that does not learn: one that diverged is given up, one that stalls starts anew.

Only the profiler's facts go in. A job that never told of its pace is left alone: nobody can say what is long for it.
"""

from __future__ import annotations

from dataclasses import dataclass

from am.profiler.profile import JobProfile

ACT_ON_STALL_S = 600.0
"""A stall is told of sooner. A program of the user's own may evaluate or write for minutes without a word, and starting
it anew would cost what it did since its checkpoint: as long as MapReduce gives a task without progress (its
`mapreduce.task.timeout`)."""

PATIENCE = 2.0
"""Each restart for a stall makes the next one wait so many times longer: a program that was stopped in the middle of a
long evaluation comes to its end one time, and from then on its length is known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    """Why a job is stopped. A `hopeless` one is not started again: it would only lose what it lost once more."""

    reason: str
    hopeless: bool


def trouble_of(profile: JobProfile, target: int, stalls: int = 0) -> Trouble | None:
    """What is wrong with a running job, None while it does well.

    Args:
        profile: What its log tells.
        target: The iteration that it runs to; past it a job may take its time, for a last evaluation perhaps.
        stalls: How often it was started again for a stall.
    """
    diverged, stall = profile.diverged, profile.stall
    if diverged is not None:
        return Trouble(reason=f"its loss is no number since iteration {diverged.since_iteration}", hopeless=True)
    if stall is None or not profile.paces or profile.iteration >= target:
        return None
    if stall.waited_s < PATIENCE**stalls * max(ACT_ON_STALL_S, stall.allowed_s):
        return None
    return Trouble(reason=f"no iteration for {stall.waited_s:.0f} s", hopeless=False)
