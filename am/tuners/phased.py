"""The state machine of tuners with phases: all jobs of a phase reach its target, then the best ones go on."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from am.tuners.port import Observation, ObservationKind, Phase, TunerPlan
from themis.apps import JobSpec, Setting, TunerSpec
from themis.config.tuner_settings import check_tuner
from themis.errors import InputError, UnknownNameError
from themis.values import Value


class Rung(Value, frozen=True, kw_only=True):
    """A planned phase: `sizes` jobs, per bracket, run up to the cumulative iteration `target`."""

    sizes: tuple[int, ...]
    target: int


@dataclass(slots=True)
class _Seen:
    """The state of one job: its newest iteration and loss, and whether it has failed.

    `bracket` is the index of its bracket. `lost` is the phase at whose end it lost, or -1 while it is in the search.
    """

    bracket: int
    iteration: int = -1
    loss: float = math.nan
    reached: int = -1
    failed: bool = False
    lost: int = -1

    @property
    def stopped(self) -> bool:
        """Whether it lost, even if it failed afterwards."""
        return self.lost >= 0


class PhasedTuner:
    """Runs jobs through rungs. At the end of each rung, the jobs with the lowest losses at their targets go on.

    - Jobs compete only within their bracket. All brackets are in the same phase.
    - A phase ends when each of its jobs has reached its target or failed.
    - A job's target is the rung's, at most the job's own `iterations_total`. A job that is already at its target when a
      phase begins does not run, and competes with its present loss.
    - Losses are compared at the target. Losses that a job logs after its target do not count.
    - NaN is worse than any loss. Equal losses are ordered by job id.
    - A failed job drops out. Later rungs keep their planned size while enough jobs are live, so a failure saves a job
      that would have lost.
    - If all jobs of a phase have failed, the best of the jobs that lost last is reinstated, and runs to the target. If
      all jobs have failed, the plan is finished and has no best job.
    - Jobs that completed the last phase are not in `stopped`, nor are jobs that failed before they lost.

    Args:
        name: The tuner's name.
        jobs: The jobs of the app.
        rungs: The phases. No bracket may grow from one phase to the next.
        brackets: The job ids of each bracket. Every job must be in one. Empty: one bracket with all jobs.
    """

    def __init__(
        self, name: str, jobs: Sequence[JobSpec], rungs: Sequence[Rung], brackets: Sequence[Sequence[str]] = ()
    ) -> None:
        self.name = name
        self._rungs = _merged(rungs)
        self._totals = {job.job_id: job.iterations_total for job in jobs}
        self._brackets = [tuple(bracket) for bracket in brackets] or [tuple(self._totals)]
        self._seen = {job: _Seen(bracket) for bracket, members in enumerate(self._brackets) for job in members}
        self._phase = 0
        self._begun_at = 0
        self._finished = False

    def observe(self, observation: Observation) -> None:
        """Process one observation. Ignores stale and repeated ones. Raises UnknownNameError for an unknown job."""
        seen = self._seen.get(observation.job_id)
        if seen is None:
            raise UnknownNameError("job", observation.job_id, self._seen)
        if self._finished or seen.failed:
            return
        if observation.kind is ObservationKind.FAILED:
            seen.failed = True
        elif observation.kind is ObservationKind.PROGRESS:
            self._take_progress(seen, observation)
        elif not seen.stopped:
            self._take_reached(seen, observation)
        self._advance()

    def plan(self) -> TunerPlan:
        """Return the present decision."""
        return TunerPlan(
            phase=self._phase,
            phases=self._phases_left(),
            targets={job: self._target(job) for job in self._pending()},
            stopped=frozenset(job for job, seen in self._seen.items() if seen.stopped),
            finished=self._finished,
            best=self._best(),
        )

    def _take_progress(self, seen: _Seen, observation: Observation) -> None:
        """Note a job's iteration, and also its loss while it runs towards a target."""
        if observation.iteration <= seen.iteration:
            return
        seen.iteration = observation.iteration
        if not seen.stopped and seen.reached < self._target(observation.job_id):
            seen.loss = observation.loss

    def _take_reached(self, seen: _Seen, observation: Observation) -> None:
        """Accept that the job reached its current target. A target of an earlier phase is stale."""
        target = self._target(observation.job_id)
        if observation.iteration < target or seen.reached >= target:
            return
        seen.reached = observation.iteration
        seen.iteration = max(seen.iteration, observation.iteration)
        seen.loss = observation.loss

    def _advance(self) -> None:
        """End the phase if none of its jobs is pending, and then later phases that need no iteration."""
        while not self._finished and not self._pending():
            if not self._alive() and self._losers():
                self._reinstate()
            elif not self._alive() or self._phase == len(self._rungs) - 1:
                self._finished = True
            else:
                self._cut()

    def _cut(self) -> None:
        """Begin the next phase with the best jobs of this one."""
        ranked = [self._ranked(bracket) for bracket in self._brackets]
        sizes = self._rungs[self._phase + 1].sizes
        for jobs, size in zip(ranked, sizes, strict=True):
            for job in jobs[size:]:
                self._seen[job].lost = self._phase
        self._brackets = [tuple(jobs[:size]) for jobs, size in zip(ranked, sizes, strict=True)]
        self._begun_at = self._rungs[self._phase].target
        self._phase += 1

    def _reinstate(self) -> None:
        """Reinstate the best of the jobs that lost last, because all jobs that went on have failed."""
        losers = self._losers()
        latest = max(self._seen[job].lost for job in losers)
        [job, *_] = self._ranked([job for job in losers if self._seen[job].lost == latest])
        seen = self._seen[job]
        seen.lost = -1
        self._brackets[seen.bracket] = (job,)
        self._begun_at = self._rungs[latest].target

    def _losers(self) -> list[str]:
        """Return the jobs that could be reinstated."""
        return [job for job, seen in self._seen.items() if seen.stopped and not seen.failed]

    def _target(self, job_id: str) -> int:
        return min(self._rungs[self._phase].target, self._totals[job_id])

    def _living(self, bracket: Sequence[str]) -> list[str]:
        return [job for job in bracket if not self._seen[job].failed]

    def _alive(self) -> list[str]:
        """Return the live jobs of the phase."""
        return [job for bracket in self._brackets for job in self._living(bracket)]

    def _pending(self) -> list[str]:
        return sorted(job for job in self._alive() if self._seen[job].reached < self._target(job))

    def _ranked(self, jobs: Sequence[str]) -> list[str]:
        """Return the live ones of these jobs, best first."""
        return sorted(self._living(jobs), key=lambda job: (loss_rank(self._seen[job].loss), job))

    def _best(self) -> str | None:
        """Return the live job of the phase with the lowest newest loss, among those that have reported."""
        return next((job for job in self._ranked(self._alive()) if self._seen[job].iteration >= 0), None)

    def _phases_left(self) -> tuple[Phase, ...]:
        """Return the current and later phases, with at most the number of live jobs. Empty once finished."""
        if self._finished:
            return ()
        alive = [len(self._living(bracket)) for bracket in self._brackets]
        done = self._begun_at
        phases = []
        for rung in self._rungs[self._phase :]:
            jobs = sum(map(min, rung.sizes, alive))
            phases.append(Phase(jobs=jobs, iterations=rung.target - done))
            done = rung.target
        return tuple(phases)


def loss_rank(loss: float) -> tuple[bool, float]:
    """Return a key that sorts losses best first and NaN last."""
    return (True, 0.0) if math.isnan(loss) else (False, loss)


def longest(jobs: Sequence[JobSpec]) -> int:
    """Return the largest `iterations_total` of these jobs. Raises InputError without jobs."""
    if not jobs:
        raise InputError("a tuner needs at least one job", value=0, remedy="raise jobs to 1 or more")
    return max(job.iterations_total for job in jobs)


def check_settings(name: str, jobs: Sequence[JobSpec], **settings: Setting | None) -> None:
    """Check settings of a tuner that is created directly, by the rules for group files. None means not given.

    Raises:
        InputError: A setting is out of range, or conflicts with another setting or the jobs.
    """
    given = {key: value for key, value in settings.items() if value is not None}
    spec = TunerSpec(name=name, settings=given)
    check_tuner(spec, jobs=len(jobs), iterations=longest(jobs), source=f"tuner {name}")


def _merged(rungs: Sequence[Rung]) -> tuple[Rung, ...]:
    """Return the rungs without those that add no iteration. Their cut happens at the next rung."""
    kept: list[Rung] = []
    for rung in rungs:
        if not kept or rung.target > kept[-1].target:
            kept.append(rung)
    return tuple(kept)
