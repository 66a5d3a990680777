"""The state machine of tuners that run all jobs, and stop jobs one at a time by their losses."""

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
"""Maximum number of points of a curve: the newest in each of this number of equal parts of the job's iterations."""

LOOKS = 50
"""Minimum number of times that a tuner should get a job's loss."""

_LEVEL_POINTS = 3


class CurveState(StrEnum):
    """The state of a job in the search."""

    RUNNING = "running"
    ENDED = "ended"
    STOPPED = "stopped"
    FAILED = "failed"


@dataclass(slots=True)
class Curve:
    """A job's losses by iteration. NaN is stored as infinity."""

    total: int
    iterations: list[int] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)
    state: CurveState = CurveState.RUNNING
    reinstated: bool = False

    @property
    def iteration(self) -> int:
        """The newest iteration, or -1 before the first."""
        return self.iterations[-1] if self.iterations else -1

    @property
    def loss(self) -> float:
        """The newest loss. Infinite before the first."""
        return self.losses[-1] if self.losses else math.inf

    @property
    def best(self) -> float:
        """The lowest loss so far. Infinite while the newest loss is NaN or infinite."""
        return min(self.losses) if math.isfinite(self.loss) else math.inf

    @property
    def level(self) -> float:
        """The median of the newest losses, which a single lucky batch does not change."""
        return median(self.losses[-_LEVEL_POINTS:]) if math.isfinite(self.loss) else math.inf

    @property
    def lives(self) -> bool:
        """Whether it has neither stopped nor failed."""
        return self.state in (CurveState.RUNNING, CurveState.ENDED)

    def at(self, iteration: int) -> float:
        """Return the loss at a past iteration, by linear interpolation."""
        right = bisect_right(self.iterations, iteration)
        if right == 0:
            return self.losses[0]
        if right == len(self.iterations) or self.iterations[right - 1] == iteration:
            return self.losses[right - 1]
        share = (iteration - self.iterations[right - 1]) / (self.iterations[right] - self.iterations[right - 1])
        before, after = self.losses[right - 1], self.losses[right]
        return before + share * (after - before) if math.isfinite(before) and math.isfinite(after) else math.inf

    def add(self, iteration: int, loss: float) -> None:
        """Append a point. It replaces the newest one if both are in the same part."""
        if self.iterations and self._part(iteration) == self._part(self.iterations[-1]):
            self.iterations.pop()
            self.losses.pop()
        self.iterations.append(iteration)
        self.losses.append(loss if math.isfinite(loss) else math.inf)

    def _part(self, iteration: int) -> int:
        return iteration * POINTS // self.total


class StoppingRule(Protocol):
    """Decides which jobs stop. Its answers depend only on earlier calls, not on a clock or on randomness."""

    def stops(self, job_id: str, curves: Mapping[str, Curve]) -> bool:
        """Whether the job should stop. The tuner asks after each new point of a running job."""
        ...

    def ended(self, job_id: str, curve: Curve) -> None:
        """Note that a job has ended. Its curve's state has the reason.

        A job that ended may still fail later, and a stopped job may be reinstated.
        """
        ...


Foresight = Callable[[Mapping[str, Curve]], Mapping[str, int]]
"""Returns the latest iteration at which running jobs may stop, for those that are expected to stop early."""


class StoppingTuner:
    """Runs all jobs to their `iterations_total`, except those that its rule stops.

    - The leader, the live job with the lowest newest loss, never stops. So one job reaches its end.
    - If no job is live, the stopped job with the lowest newest loss is reinstated, and runs to its end. The rule is not
      asked about it again.
    - NaN is worse than any loss. Equal losses are ordered by job id.

    Args:
        name: The tuner's name.
        jobs: The jobs of the app.
        rule: Decides which jobs stop.
        foresight: Returns how far jobs may still run. Without it, all count to their ends.
    """

    def __init__(
        self, name: str, jobs: Sequence[JobSpec], rule: StoppingRule, foresight: Foresight | None = None
    ) -> None:
        self.name = name
        self._loss_every = max(1, longest(jobs) // LOOKS)
        self._rule, self._foresight = rule, foresight
        self._curves = {job.job_id: Curve(job.iterations_total) for job in jobs}
        self._failed_late: set[str] = set()
        self._latest: Mapping[str, int] | None = {}

    def observe(self, observation: Observation) -> None:
        """Process one observation. Ignores stale and repeated ones. Raises UnknownNameError for an unknown job."""
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
        """Return the present decision."""
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
            loss_every=self._loss_every,
        )

    def _take_progress(self, observation: Observation, curve: Curve) -> None:
        """Note the loss, also of a job that is being stopped. Ask the rule about a running job."""
        if curve.state is CurveState.ENDED or observation.iteration <= curve.iteration:
            return
        curve.add(observation.iteration, observation.loss)
        self._latest = None
        if curve.state is CurveState.RUNNING and not curve.reinstated:
            job_id = observation.job_id
            # Ask the rule about the leader too, because some rules count the calls.
            if self._rule.stops(job_id, self._curves) and job_id != self._leader():
                self._end(job_id, CurveState.STOPPED)

    def _fail(self, job_id: str) -> None:
        """Note a failure. A job that was stopped before stays stopped, but cannot be reinstated."""
        if self._curves[job_id].state is CurveState.STOPPED:
            self._failed_late.add(job_id)
        else:
            self._end(job_id, CurveState.FAILED)
            self._reinstate()

    def _reinstate(self) -> None:
        """If no job is live, reinstate the best stopped job, if there is one."""
        stopped = [job_id for job_id, curve in self._curves.items() if curve.state is CurveState.STOPPED]
        candidates = [job_id for job_id in stopped if job_id not in self._failed_late]
        if candidates and not any(curve.lives for curve in self._curves.values()):
            best = self._curves[self._first(candidates)]
            best.state, best.reinstated = CurveState.RUNNING, True

    def _end(self, job_id: str, state: CurveState) -> None:
        self._curves[job_id].state = state
        self._latest = None
        self._rule.ended(job_id, self._curves[job_id])

    def _running(self) -> list[str]:
        return sorted(job_id for job_id, curve in self._curves.items() if curve.state is CurveState.RUNNING)

    def _leader(self) -> str | None:
        reported = [job_id for job_id, curve in self._curves.items() if curve.lives and curve.iterations]
        return self._first(reported) if reported else None

    def _first(self, job_ids: Sequence[str]) -> str:
        """Return the job with the lowest newest loss."""
        return min(job_ids, key=lambda job_id: (loss_rank(self._curves[job_id].loss), job_id))

    def _foreseen(self) -> Mapping[str, int]:
        """Return `foresight`'s result, computed once per state, because `plan` is called much more often."""
        if self._latest is None:
            self._latest = self._foresight(self._curves) if self._foresight else {}
        return self._latest
