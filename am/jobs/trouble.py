"""What an app master does about a job that does not learn: one that diverged is given up, one that stalls starts anew.

Only the profiler's facts go in. A job that never told of its pace is left alone: nobody can say what is long for it.
"""

from __future__ import annotations

from dataclasses import dataclass

from am.profiler.profile import JobProfile


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    """Why a job is stopped. A `hopeless` one is not started again: it would only lose what it lost once more."""

    reason: str
    hopeless: bool


def trouble_of(profile: JobProfile, target: int) -> Trouble | None:
    """What is wrong with a running job, None while it does well.

    Args:
        profile: What its log tells.
        target: The iteration that it runs to; past it a job may take its time, for a last evaluation perhaps.
    """
    diverged, stall = profile.diverged, profile.stall
    if diverged is not None:
        return Trouble(reason=f"its loss is no number since iteration {diverged.since_iteration}", hopeless=True)
    if stall is None or not profile.paces or profile.iteration >= target:
        return None
    return Trouble(reason=f"no iteration for {stall.waited_s:.0f} s", hopeless=False)
