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
        """Told when a job will not run any more; its curve's state says why. A job that ended may still fail after."""
        ...


Foresight = Callable[[Mapping[str, Curve]], Mapping[str, int]]
"""The latest iteration at which running jobs may stop, of those that are foreseen to stop before their end."""


class StoppingTuner:
    """Runs all jobs to their `iterations_total`, but for those that its rule stops.

    - The leader, the living job of least newest loss, is not stopped, whatever the rule says: one comes to the end.
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
        self._latest: Mapping[str, int] | None = {}

    def observe(self, observation: Observation) -> None:
        """Take in one observation; unknown jobs raise UnknownNameError, stale and repeated ones change nothing."""
        curve = self._curves.get(observation.job_id)
        if curve is None:
            raise UnknownNameError("job", observation.job_id, self._curves)
        if not curve.lives or not self._running():
            return
        if observation.kind is ObservationKind.FAILED:
            self._end(observation.job_id, CurveState.FAILED)
        elif curve.state is not CurveState.RUNNING:
            return
        elif observation.kind is ObservationKind.TARGET_REACHED:
            if observation.iteration >= curve.total:
                curve.add(max(observation.iteration, curve.iteration), observation.loss)
                self._end(observation.job_id, CurveState.ENDED)
        elif observation.iteration > curve.iteration:
            curve.add(observation.iteration, observation.loss)
            self._latest = None
            if self._rule.stops(observation.job_id, self._curves) and observation.job_id != self._leader():
                self._end(observation.job_id, CurveState.STOPPED)

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

    def _end(self, job_id: str, state: CurveState) -> None:
        self._curves[job_id].state = state
        self._latest = None
        self._rule.ended(job_id, self._curves[job_id])

    def _running(self) -> list[str]:
        return sorted(job_id for job_id, curve in self._curves.items() if curve.state is CurveState.RUNNING)

    def _leader(self) -> str | None:
        heard = [job_id for job_id, curve in self._curves.items() if curve.lives and curve.iterations]
        return min(heard, key=lambda job_id: (loss_rank(self._curves[job_id].loss), job_id), default=None)

    def _foreseen(self) -> Mapping[str, int]:
        """Worked out once for each state: plans are asked for much more often than things happen."""
        if self._latest is None:
            self._latest = self._foresight(self._curves) if self._foresight else {}
        return self._latest
