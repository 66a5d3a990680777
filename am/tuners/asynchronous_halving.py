"""Asynchronous successive halving (ASHA): a job goes on as soon as it is among the best of those that came so far.

Source: Li, Jamieson, Rostamizadeh, et al., "A System for Massively Parallel Hyperparameter Tuning", MLSys 2020,
algorithm 2, over jobs that are given.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from am.tuners.phased import check_settings, longest, loss_rank
from am.tuners.port import Observation, ObservationKind, Phase, TunerPlan
from am.tuners.successive_halving import geometric_rungs
from themis.apps import JobSpec
from themis.errors import UnknownNameError

NAME = "asynchronous_halving"
DEFAULT_ETA = 2


@dataclass(slots=True)
class _Climber:
    """A job: the rung that it runs in or has reached, its loss at each rung reached, its newest iteration and loss."""

    total: int
    rung: int = 0
    losses: list[float] = field(default_factory=list)
    iteration: int = -1
    loss: float = math.nan
    failed: bool = False

    @property
    def runs(self) -> bool:
        """True while it has yet to reach its rung."""
        return not self.failed and len(self.losses) == self.rung


class AsynchronousHalving:
    """Runs jobs up rungs without a barrier.

    - Of the c jobs that have reached a rung, floor(c / eta) of least loss are promoted to the next; a promotion is not
      taken back when better ones come later, so a rung may get more jobs than under successive halving.
    - When nothing runs and no job has reached the last rung, the best of the highest rung goes on: a search ends with
      one job at least that ran to the end, unless those fail that could.
    - A job that is at its own end already when it is promoted has reached that rung with the loss it has.
    - Failed jobs count in no rung. NaN is worse than any loss; equal losses are ordered by job id.
    - Jobs that wait for a promotion are neither running nor stopped; those that never got it are stopped at the end.

    Args:
        jobs: The jobs of the app.
        eta: How many times fewer jobs each rung is planned to have.
        sizes: Jobs planned for each rung.
        targets: The cumulative iteration at which each rung ends, rising.
    """

    def __init__(self, jobs: Sequence[JobSpec], eta: int, sizes: Sequence[int], targets: Sequence[int]) -> None:
        self.name = NAME
        self._eta = eta
        self._sizes, self._targets = tuple(sizes), tuple(targets)
        self._jobs = {job.job_id: _Climber(job.iterations_total) for job in jobs}
        self._stopped: frozenset[str] = frozenset()
        self._finished = False

    def observe(self, observation: Observation) -> None:
        """Take in one observation; unknown jobs raise UnknownNameError, stale and repeated ones change nothing."""
        job = self._jobs.get(observation.job_id)
        if job is None:
            raise UnknownNameError("job", observation.job_id, self._jobs)
        if self._finished or job.failed:
            return
        if observation.kind is ObservationKind.FAILED:
            job.failed = True
        elif not job.runs:
            return
        elif observation.kind is ObservationKind.TARGET_REACHED:
            if observation.iteration < self._target(job):
                return
            job.iteration, job.loss = observation.iteration, observation.loss
            job.losses.append(observation.loss)
        elif job.iteration < observation.iteration:
            job.iteration, job.loss = observation.iteration, observation.loss
        self._advance()

    def plan(self) -> TunerPlan:
        """What should run now."""
        return TunerPlan(
            phase=0,
            phases=self._phases_left(),
            targets={job_id: self._target(self._jobs[job_id]) for job_id in self._running()},
            stopped=self._stopped,
            finished=self._finished,
            best=self._best(),
        )

    # ---- inside ----

    def _target(self, job: _Climber) -> int:
        return min(self._targets[job.rung], job.total)

    def _running(self) -> list[str]:
        return sorted(job_id for job_id, job in self._jobs.items() if not self._finished and job.runs)

    def _advance(self) -> None:
        """Promote whom the rungs allow; at a standstill the best of the highest rung; else end."""
        while True:
            promoted = self._promotable()
            if not promoted and not self._running():
                promoted = self._stalled()
                if not promoted:
                    self._finish()
                    return
            if not promoted:
                return
            for job_id in promoted:
                self._promote(self._jobs[job_id])

    def _at(self, rung: int) -> list[str]:
        """Living jobs that have reached a rung, best first."""
        there = [job_id for job_id, job in self._jobs.items() if not job.failed and len(job.losses) > rung]
        return sorted(there, key=lambda job_id: (loss_rank(self._jobs[job_id].losses[rung]), job_id))

    def _promotable(self) -> list[str]:
        found: list[str] = []
        for rung in range(len(self._targets) - 1):
            ranked = self._at(rung)
            found += [job_id for job_id in ranked[: len(ranked) // self._eta] if self._jobs[job_id].rung == rung]
        return found

    def _stalled(self) -> list[str]:
        """The best job of the highest rung that any reached, unless that is the last one; none where all failed."""
        last = len(self._targets) - 1
        reached = [rung for rung in range(last + 1) if self._at(rung)]
        return self._at(reached[-1])[:1] if reached and reached[-1] < last else []

    def _promote(self, job: _Climber) -> None:
        job.rung += 1
        if job.iteration >= self._target(job):
            job.losses.append(job.loss)

    def _finish(self) -> None:
        last = len(self._targets) - 1
        self._finished = True
        self._stopped = frozenset(j for j, job in self._jobs.items() if not job.failed and len(job.losses) <= last)

    def _best(self) -> str | None:
        """The leader: the best of the living jobs in the highest rung that was reached; before any, by newest loss."""
        for rung in reversed(range(len(self._targets))):
            if ranked := self._at(rung):
                return ranked[0]
        heard = [job_id for job_id, job in self._jobs.items() if not job.failed and job.iteration >= 0]
        return min(heard, key=lambda job_id: (loss_rank(self._jobs[job_id].loss), job_id), default=None)

    def _phases_left(self) -> tuple[Phase, ...]:
        """What runs, as one phase, and the promotions planned that are still to come, rung by rung."""
        running = self._running()
        if not running:
            return ()
        living = [job for job in self._jobs.values() if not job.failed]
        furthest = max(self._iterations_in(self._jobs[job_id].rung) for job_id in running)
        phases = [Phase(jobs=len(running), iterations=furthest)]
        for rung in range(1, len(self._targets)):
            entered = sum(job.rung >= rung for job in living)
            to_come = min(self._sizes[rung], len(living)) - entered
            if to_come > 0:
                phases.append(Phase(jobs=to_come, iterations=self._iterations_in(rung)))
        return tuple(phases)

    def _iterations_in(self, rung: int) -> int:
        return self._targets[rung] - (self._targets[rung - 1] if rung else 0)


def asynchronous_halving(
    jobs: Sequence[JobSpec], *, eta: int = DEFAULT_ETA, first_iterations: int | None = None
) -> AsynchronousHalving:
    """The tuner for these jobs; rungs are the phases of successive halving with these settings.

    Raises:
        InputError: Settings out of range.
    """
    check_settings(NAME, jobs, eta=eta, first_iterations=first_iterations)
    rungs = geometric_rungs(len(jobs), longest(jobs), eta, first_iterations)
    # Rungs that ask for no further iteration are one; the cut after it is one in eta all the same.
    targets = sorted({rung.target for rung in rungs})
    return AsynchronousHalving(jobs, eta, [rung.sizes[0] for rung in rungs[: len(targets)]], targets)
