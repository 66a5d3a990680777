"""The state machine behind tuners that let all jobs run and stop one at a time, by their losses as they come."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from statistics import median
from typing import Protocol

from am.tuners.phased import longest, loss_rank
from am.tuners.port import Observation, ObservationKind, Phase, TunerPlan
from themis.apps import JobSpec
from themis.errors import UnknownNameError

POINTS = 512
"""Most points kept of a curve: of those that fall into one such part of the job's iterations, the newest."""

LOOKS = 50
"""How often in a job's life its loss should be heard of at least."""

_LEVEL_POINTS = 3


class CurveState(StrEnum):
    """What became of a job."""

    RUNNING = "running"
    ENDED = "ended"
    STOPPED = "stopped"
    FAILED = "failed"


@dataclass(slots=True)
class Curve:
    """A job's losses by iteration, as far as it came; a loss that is no number is kept as infinite."""

    total: int
    iterations: list[int] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)
    state: CurveState = CurveState.RUNNING
    taken_back: bool = False

    @property
    def iteration(self) -> int:
        """The newest iteration; -1 before any."""
        return self.iterations[-1] if self.iterations else -1

    @property
    def loss(self) -> float:
        """The newest loss; infinite before any."""
        return self.losses[-1] if self.losses else math.inf

    @property
    def best(self) -> float:
        """The least loss so far; infinite while the newest is no number."""
        return min(self.losses) if math.isfinite(self.loss) else math.inf

    @property
    def level(self) -> float:
        """The median of the newest losses, which a single lucky batch does not move."""
        return median(self.losses[-_LEVEL_POINTS:]) if math.isfinite(self.loss) else math.inf

    @property
    def lives(self) -> bool:
        """True unless it was stopped or failed."""
        return self.state in (CurveState.RUNNING, CurveState.ENDED)

    def at(self, iteration: int) -> float:
        """The loss at an iteration that was passed, on the line between its neighbours."""
        right = bisect_right(self.iterations, iteration)
        if right == 0:
            return self.losses[0]
        if right == len(self.iterations) or self.iterations[right - 1] == iteration:
            return self.losses[right - 1]
        share = (iteration - self.iterations[right - 1]) / (self.iterations[right] - self.iterations[right - 1])
        before, after = self.losses[right - 1], self.losses[right]
        return before + share * (after - before) if math.isfinite(before) and math.isfinite(after) else math.inf

    def add(self, iteration: int, loss: float) -> None:
        """Add a point behind the others, or in place of the newest where both fall into one part."""
        if self.iterations and self._part(iteration) == self._part(self.iterations[-1]):
            self.iterations.pop()
            self.losses.pop()
        self.iterations.append(iteration)
        self.losses.append(loss if math.isfinite(loss) else math.inf)

    def _part(self, iteration: int) -> int:
        return iteration * POINTS // self.total


class StoppingRule(Protocol):
    """Says which jobs stop. Its answers follow from what it was asked before: no clock, no randomness of its own."""

    def stops(self, job_id: str, curves: Mapping[str, Curve]) -> bool:
        """Asked after each new point of a running job."""
        ...

    def ended(self, job_id: str, curve: Curve) -> None:
        """Told when a job will not run any more; its curve's state says why.

        A job that ended may still fail after, and one that was stopped be taken back.
        """
        ...


Foresight = Callable[[Mapping[str, Curve]], Mapping[str, int]]
"""The latest iteration at which running jobs may stop, of those that are foreseen to stop before their end."""


class StoppingTuner:
    """Runs all jobs to their `iterations_total`, but for those that its rule stops.

    - The leader, the living job of least newest loss, is not stopped, whatever the rule says: one comes to the end.
    - When no job lives any more, the stopped one of least newest loss is taken back, and runs to its end: the rule,
      which was told that it had ended, is not asked about it again.
    - A loss that is no number is worse than any; equal losses are ordered by job id.

    Args:
        name: The tuner's name.
        jobs: The jobs of the app.
        rule: Says which jobs stop.
        foresight: Says how far jobs may still run; without one all count to their end.
    """

    def __init__(
        self, name: str, jobs: Sequence[JobSpec], rule: StoppingRule, foresight: Foresight | None = None
    ) -> None:
        self.name = name
        self._hears_every = max(1, longest(jobs) // LOOKS)
        self._rule, self._foresight = rule, foresight
        self._curves = {job.job_id: Curve(job.iterations_total) for job in jobs}
        self._failed_late: set[str] = set()
        self._latest: Mapping[str, int] | None = {}

    def observe(self, observation: Observation) -> None:
        """Take in one observation; unknown jobs raise UnknownNameError, stale and repeated ones change nothing."""
        curve = self._curves.get(observation.job_id)
        if curve is None:
            raise UnknownNameError("job", observation.job_id, self._curves)
        if curve.state is CurveState.FAILED or not self._running():
            return
        if observation.kind is ObservationKind.FAILED:
            self._fail(observation.job_id)
        elif observation.kind is ObservationKind.PROGRESS:
            self._take_progress(observation, curve)
        elif curve.state is CurveState.RUNNING and observation.iteration >= curve.total:
            curve.add(max(observation.iteration, curve.iteration), observation.loss)
            self._end(observation.job_id, CurveState.ENDED)

    def plan(self) -> TunerPlan:
        """What should run now."""
        targets = {job_id: self._curves[job_id].total for job_id in self._running()}
        left = max((self._curves[job_id].total for job_id in targets), default=0)
        return TunerPlan(
            phase=0,
            phases=(Phase(jobs=len(targets), iterations=left),) if targets else (),
            targets=targets,
            stopped=frozenset(j for j, curve in self._curves.items() if curve.state is CurveState.STOPPED),
            finished=not targets,
            best=self._leader(),
            latest=self._foreseen(),
            hears_every=self._hears_every,
        )

    def _take_progress(self, observation: Observation, curve: Curve) -> None:
        """Note the loss, also of a job on its way to a stop; ask the rule about one that runs."""
        if curve.state is CurveState.ENDED or observation.iteration <= curve.iteration:
            return
        curve.add(observation.iteration, observation.loss)
        self._latest = None
        if curve.state is CurveState.RUNNING and not curve.taken_back and self._stops(observation.job_id):
            self._end(observation.job_id, CurveState.STOPPED)

    def _stops(self, job_id: str) -> bool:
        # The rule is asked about the leader, too: some count what they are asked.
        return self._rule.stops(job_id, self._curves) and job_id != self._leader()

    def _fail(self, job_id: str) -> None:
        """A job that was stopped before it failed stays stopped, but cannot be taken back."""
        if self._curves[job_id].state is CurveState.STOPPED:
            self._failed_late.add(job_id)
        else:
            self._end(job_id, CurveState.FAILED)
            self._take_back()

    def _take_back(self) -> None:
        """Where no job lives, let the best of those run on that were stopped, if there are any."""
        stopped = [job_id for job_id, curve in self._curves.items() if curve.state is CurveState.STOPPED]
        hopeful = [job_id for job_id in stopped if job_id not in self._failed_late]
        if hopeful and not any(curve.lives for curve in self._curves.values()):
            best = self._curves[self._first(hopeful)]
            best.state, best.taken_back = CurveState.RUNNING, True

    def _end(self, job_id: str, state: CurveState) -> None:
        self._curves[job_id].state = state
        self._latest = None
        self._rule.ended(job_id, self._curves[job_id])

    def _running(self) -> list[str]:
        return sorted(job_id for job_id, curve in self._curves.items() if curve.state is CurveState.RUNNING)

    def _leader(self) -> str | None:
        heard = [job_id for job_id, curve in self._curves.items() if curve.lives and curve.iterations]
        return self._first(heard) if heard else None

    def _first(self, job_ids: Sequence[str]) -> str:
        """The job of least newest loss."""
        return min(job_ids, key=lambda job_id: (loss_rank(self._curves[job_id].loss), job_id))

    def _foreseen(self) -> Mapping[str, int]:
        """Worked out once for each state: plans are asked for much more often than things happen."""
        if self._latest is None:
            self._latest = self._foresight(self._curves) if self._foresight else {}
        return self._latest
