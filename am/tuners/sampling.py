"""The state machine behind tuners that choose which job runs next by how those before it did.

An app's jobs are known when it is submitted: they are the candidates, and a search that would draw any point takes the
candidate nearest to it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

from am.tuners.port import Observation, ObservationKind, Phase, TunerPlan
from am.tuners.stopping import StoppingRule, StoppingTuner
from themis.apps import JobSpec


class Search(StoppingRule, Protocol):
    """Chooses jobs, and says which of those that run stop. Its answers follow from what it was asked and told."""

    def choose(self, candidates: Sequence[str]) -> str:
        """The job to run next, of these; it runs from now on."""
        ...


class SamplingTuner:
    """Runs jobs a few at a time to their `iterations_total`, but for those that its search stops.

    - The first jobs are chosen before anything is known; each that ends, is stopped or fails makes room for another.
    - A job that failed does not count among the trials: another takes its place. One that was stopped before it failed
      has told what it could.
    - Candidates that were never chosen are neither running nor stopped; they are stopped at the end.
    - Else as with StoppingTuner: the leader is not stopped, NaN is worse than any loss.

    Args:
        name: The tuner's name.
        jobs: The jobs of the app, the candidates.
        search: Chooses and stops.
        trials: How many jobs are run, at most.
        parallel: How many of them at once.
    """

    def __init__(self, name: str, jobs: Sequence[JobSpec], search: Search, *, trials: int, parallel: int) -> None:
        self.name = name
        self._runs = StoppingTuner(name, jobs, search)
        self._search = search
        self._trials, self._parallel = trials, parallel
        self._totals = {job.job_id: job.iterations_total for job in jobs}
        self._candidates = sorted(self._totals)
        self._counted: set[str] = set()
        self._passed_over: dict[str, int] = {}
        self._choose()

    def observe(self, observation: Observation) -> None:
        """Take in one observation; unknown jobs raise UnknownNameError, stale and repeated ones change nothing."""
        job_id, failed = observation.job_id, observation.kind is ObservationKind.FAILED
        if job_id in self._totals and (not self._running() or (not failed and self._is_early(observation))):
            return
        stopped = self._runs.plan().stopped
        self._runs.observe(observation)
        if failed:
            self._counted -= {job_id} - stopped
            self._candidates = [each for each in self._candidates if each != job_id]
        self._choose()

    def plan(self) -> TunerPlan:
        """What should run now."""
        running = self._running()
        runs = self._runs.plan()
        return replace(
            runs,
            phases=self._phases_left(running),
            targets={job_id: self._totals[job_id] for job_id in running},
            stopped=runs.stopped if running else runs.stopped | set(self._candidates),
            finished=not running,
        )

    # ---- inside ----

    def _running(self) -> list[str]:
        waiting = set(self._candidates)
        return [job_id for job_id in self._runs.plan().targets if job_id not in waiting]

    def _is_early(self, observation: Observation) -> bool:
        """Whether it is of a job that was not chosen yet, or was told of it then: nothing ran that could tell it."""
        job_id, iteration = observation.job_id, observation.iteration
        if job_id in self._candidates:
            self._passed_over[job_id] = max(iteration, self._passed_over.get(job_id, iteration))
        return iteration <= self._passed_over.get(job_id, -1)

    def _left(self) -> int:
        """Trials that are still to be begun."""
        return min(self._trials - len(self._counted), len(self._candidates))

    def _choose(self) -> None:
        for _ in range(min(self._parallel - len(self._running()), self._left())):
            job_id = self._search.choose(self._candidates)
            self._candidates.remove(job_id)
            self._counted.add(job_id)

    def _phases_left(self, running: Sequence[str]) -> tuple[Phase, ...]:
        """What runs, and then the trials to come, as many at once as may be."""
        if not running:
            return ()
        phases = [Phase(jobs=len(running), iterations=max(self._totals[job_id] for job_id in running))]
        left, longest = self._left(), max((self._totals[job_id] for job_id in self._candidates), default=0)
        waves = [min(self._parallel, left - begun) for begun in range(0, left, self._parallel)]
        return (*phases, *(Phase(jobs=jobs, iterations=longest) for jobs in waves))
