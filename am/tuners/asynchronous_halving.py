"""Asynchronous successive halving (ASHA): promote a job as soon as it is among the best of those that came as far.

Source: Li, Jamieson, Rostamizadeh, et al., "A System for Massively Parallel Hyperparameter Tuning", MLSys 2020,
algorithm 2, with a given set of jobs.
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
    """A job: its present rung, its loss at each rung that it reached, and its newest iteration and loss."""

    total: int
    rung: int = 0
    losses: list[float] = field(default_factory=list)
    iteration: int = -1
    loss: float = math.nan
    failed: bool = False

    @property
    def runs(self) -> bool:
        """Whether it has not reached its rung yet."""
        return not self.failed and len(self.losses) == self.rung


class AsynchronousHalving:
    """Promotes jobs from rung to rung without waiting for all jobs of a rung.

    - Of the c jobs that have reached a rung, the floor(c / eta) with the lowest losses are promoted. Promotions are
      final, so a rung may get more jobs than in successive halving.
    - If no job runs and none has reached the last rung, the best job of the highest rung is promoted. So at least one
      job runs to the end, unless all that could have failed.
    - A promoted job that is already at its own end has reached the next rung with its present loss.
    - Failed jobs count in no rung. NaN is worse than any loss. Equal losses are ordered by job id.
    - Jobs that wait for a promotion are neither running nor stopped. Those that never get one are stopped at the end.

    Example: eta 2. Job a reaches rung 0 with loss 0.5: c = 1, no promotion. Job b reaches it with 0.4: c = 2, so b is
    promoted. Job c reaches it with 0.3: c = 3, one promotion, so c is promoted too.

    Args:
        jobs: The jobs of the app.
        eta: Each rung is planned to have `eta` times fewer jobs than the one before.
        sizes: Planned number of jobs per rung.
        targets: The cumulative iteration at which each rung ends, in increasing order.
    """

    def __init__(self, jobs: Sequence[JobSpec], eta: int, sizes: Sequence[int], targets: Sequence[int]) -> None:
        self.name = NAME
        self._eta = eta
        self._sizes, self._targets = tuple(sizes), tuple(targets)
        self._jobs = {job.job_id: _Climber(job.iterations_total) for job in jobs}
        self._stopped: frozenset[str] = frozenset()
        self._finished = False

    def observe(self, observation: Observation) -> None:
        """Process one observation. Ignores stale and repeated ones. Raises UnknownNameError for an unknown job."""
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
        """Return the present decision."""
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
        """Promote jobs as the rungs allow. If no job runs, promote the best of the highest rung, or finish."""
        while True:
            promoted = self._promotable()
            if not promoted and not self._running():
                promoted = self._stalled()
                if not promoted:
                    last = len(self._targets) - 1
                    ended = [j for j, job in self._jobs.items() if not job.failed and len(job.losses) <= last]
                    self._finished, self._stopped = True, frozenset(ended)
                    return
            if not promoted:
                return
            for job_id in promoted:
                job = self._jobs[job_id]
                job.rung += 1
                if job.iteration >= self._target(job):
                    job.losses.append(job.loss)

    def _at(self, rung: int) -> list[str]:
        """Return the live jobs that have reached a rung, best first."""
        there = [job_id for job_id, job in self._jobs.items() if not job.failed and len(job.losses) > rung]
        return sorted(there, key=lambda job_id: (loss_rank(self._jobs[job_id].losses[rung]), job_id))

    def _promotable(self) -> list[str]:
        found: list[str] = []
        for rung in range(len(self._targets) - 1):
            ranked = self._at(rung)
            found += [job_id for job_id in ranked[: len(ranked) // self._eta] if self._jobs[job_id].rung == rung]
        return found

    def _stalled(self) -> list[str]:
        """Return the best job of the highest reached rung. Empty if that is the last rung, or all jobs failed."""
        last = len(self._targets) - 1
        reached = [rung for rung in range(last + 1) if self._at(rung)]
        return self._at(reached[-1])[:1] if reached and reached[-1] < last else []

    def _best(self) -> str | None:
        """Return the best live job of the highest reached rung. Before any rung is reached, use the newest losses."""
        for rung in reversed(range(len(self._targets))):
            if ranked := self._at(rung):
                return ranked[0]
        reported = [job_id for job_id, job in self._jobs.items() if not job.failed and job.iteration >= 0]
        return min(reported, key=lambda job_id: (loss_rank(self._jobs[job_id].loss), job_id), default=None)

    def _phases_left(self) -> tuple[Phase, ...]:
        """Return a phase of the running jobs, then a phase per rung with its outstanding planned promotions."""
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
    """Return the tuner for these jobs. Its rungs are the phases of successive halving with the same settings.

    Raises:
        InputError: A setting is out of range.
    """
    check_settings(NAME, jobs, eta=eta, first_iterations=first_iterations)
    rungs = geometric_rungs(len(jobs), longest(jobs), eta, first_iterations)
    # Merge rungs with equal targets. The cut after a merged rung is still one in eta.
    targets = sorted({rung.target for rung in rungs})
    return AsynchronousHalving(jobs, eta, [rung.sizes[0] for rung in rungs[: len(targets)]], targets)
