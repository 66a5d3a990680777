"""The state machine behind tuners that run in phases: all jobs of a phase reach its target, the best go on."""

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
    """A phase as planned at submission: `sizes` jobs, by bracket, run up to the cumulative iteration `target`."""

    sizes: tuple[int, ...]
    target: int


@dataclass(slots=True)
class _Seen:
    """What is known of one job: its newest iteration and loss, and whether it was given up.

    `bracket` is the one that it competes in; `lost` the phase at whose end it lost, -1 while it is in the search.
    """

    bracket: int
    iteration: int = -1
    loss: float = math.nan
    reached: int = -1
    failed: bool = False
    lost: int = -1

    @property
    def stopped(self) -> bool:
        """True for a loser, also for one that failed after it had lost."""
        return self.lost >= 0


class PhasedTuner:
    """Runs jobs through rungs; at the end of each the jobs of least loss at their target go on.

    - Jobs compete within their bracket only. All brackets are in the same phase at the same time.
    - A phase ends when each of its jobs has reached its target or failed.
    - A job's target is the rung's, capped at the job's own `iterations_total`; a job that is at its target already when
      a phase begins takes no part in the waiting and competes with the loss it has.
    - What a job logs between reaching its target and the phase's end does not count: losses are compared at the target.
    - NaN is worse than any loss; equal losses are ordered by job id.
    - A failed job drops out. Later rungs keep their planned size as long as enough jobs live: a failure takes the place
      of a loser.
    - When all jobs of a phase have failed, the best of the losers of the latest phase is taken back, to reach the
      target in their stead. When those have failed, too, the plan is finished and nobody is best.
    - Jobs that took part in the last phase to its end are not in `stopped`, nor are those that failed before they lost.

    Args:
        name: The tuner's name.
        jobs: The jobs of the app.
        rungs: The phases; no bracket has more jobs in one than in the one before.
        brackets: The ids of each bracket's jobs, every job in one of them; none: one bracket of all.
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
        """Take in one observation; unknown jobs raise UnknownNameError, stale and repeated ones change nothing."""
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
        """What should run now."""
        return TunerPlan(
            phase=self._phase,
            phases=self._phases_left(),
            targets={job: self._target(job) for job in self._pending()},
            stopped=frozenset(job for job, seen in self._seen.items() if seen.stopped),
            finished=self._finished,
            best=self._best(),
        )

    def _take_progress(self, seen: _Seen, observation: Observation) -> None:
        """Note how far a job is; its loss, too, while it is on its way to a target."""
        if observation.iteration <= seen.iteration:
            return
        seen.iteration = observation.iteration
        if not seen.stopped and seen.reached < self._target(observation.job_id):
            seen.loss = observation.loss

    def _take_reached(self, seen: _Seen, observation: Observation) -> None:
        """Accept a target that is the current one; one of an earlier phase is stale."""
        target = self._target(observation.job_id)
        if observation.iteration < target or seen.reached >= target:
            return
        seen.reached = observation.iteration
        seen.iteration = max(seen.iteration, observation.iteration)
        seen.loss = observation.loss

    def _advance(self) -> None:
        """End the phase, and those after it that need no iteration, once nothing of it is pending."""
        while not self._finished and not self._pending():
            if not self._alive() and self._losers():
                self._take_back()
            elif not self._alive() or self._phase == len(self._rungs) - 1:
                self._finished = True
            else:
                self._cut()

    def _cut(self) -> None:
        """Begin the next phase with the best of this one."""
        ranked = [self._ranked(bracket) for bracket in self._brackets]
        sizes = self._rungs[self._phase + 1].sizes
        for jobs, size in zip(ranked, sizes, strict=True):
            for job in jobs[size:]:
                self._seen[job].lost = self._phase
        self._brackets = [tuple(jobs[:size]) for jobs, size in zip(ranked, sizes, strict=True)]
        self._begun_at = self._rungs[self._phase].target
        self._phase += 1

    def _take_back(self) -> None:
        """Let the best of those that lost last take the place of all that went on: they have failed."""
        losers = self._losers()
        latest = max(self._seen[job].lost for job in losers)
        [job, *_] = self._ranked([job for job in losers if self._seen[job].lost == latest])
        seen = self._seen[job]
        seen.lost = -1
        self._brackets[seen.bracket] = (job,)
        self._begun_at = self._rungs[latest].target

    def _losers(self) -> list[str]:
        """Those that could still be taken back."""
        return [job for job, seen in self._seen.items() if seen.stopped and not seen.failed]

    def _target(self, job_id: str) -> int:
        return min(self._rungs[self._phase].target, self._totals[job_id])

    def _living(self, bracket: Sequence[str]) -> list[str]:
        return [job for job in bracket if not self._seen[job].failed]

    def _alive(self) -> list[str]:
        """Living members of the phase."""
        return [job for bracket in self._brackets for job in self._living(bracket)]

    def _pending(self) -> list[str]:
        return sorted(job for job in self._alive() if self._seen[job].reached < self._target(job))

    def _ranked(self, jobs: Sequence[str]) -> list[str]:
        """Those of the jobs that live, best first."""
        return sorted(self._living(jobs), key=lambda job: (loss_rank(self._seen[job].loss), job))

    def _best(self) -> str | None:
        """The leader: least newest loss among the phase's living jobs that were heard of at all."""
        return next((job for job in self._ranked(self._alive()) if self._seen[job].iteration >= 0), None)

    def _phases_left(self) -> tuple[Phase, ...]:
        """The current phase and the later ones, no larger than the number of jobs still alive; none once finished."""
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
    """A key that sorts losses best first, NaN behind everything."""
    return (True, 0.0) if math.isnan(loss) else (False, loss)


def longest(jobs: Sequence[JobSpec]) -> int:
    """The largest `iterations_total` of these jobs; no jobs raise InputError."""
    if not jobs:
        raise InputError("a tuner needs at least one job", value=0, remedy="raise jobs to 1 or more")
    return max(job.iterations_total for job in jobs)


def check_settings(name: str, jobs: Sequence[JobSpec], **settings: Setting | None) -> None:
    """Check a tuner's settings as group files' are, for those who make it themselves; None is not given.

    Raises:
        InputError: A setting out of range, or at odds with another or with the jobs.
    """
    given = {key: value for key, value in settings.items() if value is not None}
    spec = TunerSpec(name=name, settings=given)
    check_tuner(spec, jobs=len(jobs), iterations=longest(jobs), source=f"tuner {name}")


def _merged(rungs: Sequence[Rung]) -> tuple[Rung, ...]:
    """The rungs without those that ask for no further iteration: their cut falls to the rung after them."""
    kept: list[Rung] = []
    for rung in rungs:
        if not kept or rung.target > kept[-1].target:
            kept.append(rung)
    return tuple(kept)
