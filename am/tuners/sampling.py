"""The state machine of tuners that choose the next job from the results of earlier ones.

The app's jobs are given at submission: they are the candidates. A search that samples arbitrary points takes the
candidate nearest to each point.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from msgspec.structs import replace

from am.tuners.port import Observation, ObservationKind, Phase, TunerPlan
from am.tuners.stopping import StoppingRule, StoppingTuner
from themis.apps import JobSpec


class Search(StoppingRule, Protocol):
    """Chooses jobs, and decides which running jobs stop. Its answers depend only on earlier calls."""

    def choose(self, candidates: Sequence[str]) -> str:
        """Choose the job to run next. It counts as running from now on."""
        ...


class SamplingTuner:
    """Runs a few jobs at a time to their `iterations_total`, except those that its search stops.

    - The first jobs are chosen without results. When a job ends, stops or fails, another one is chosen.
    - A failed job does not count as a trial, so another one replaces it, up to as many as there are trials: more
      failures are the program's, not those of single points. A job that stopped before it failed counts.
    - Candidates that were never chosen count as stopped only at the end.
    - Other rules are those of StoppingTuner: the leader does not stop, and NaN is worse than any loss.

    Args:
        name: The tuner's name.
        jobs: The jobs of the app, which are the candidates.
        search: Chooses and stops jobs.
        trials: Maximum number of jobs to run.
        parallel: Number of jobs that run at once.
    """

    def __init__(self, name: str, jobs: Sequence[JobSpec], search: Search, *, trials: int, parallel: int) -> None:
        self.name = name
        self._runs = StoppingTuner(name, jobs, search)
        self._search = search
        self._trials, self._parallel = trials, parallel
        self._totals = {job.job_id: job.iterations_total for job in jobs}
        self._candidates = sorted(self._totals)
        self._counted: set[str] = set()
        self._replaced = 0
        self._skipped_until: dict[str, int] = {}
        self._choose()

    def observe(self, observation: Observation) -> None:
        """Process one observation. Ignores stale and repeated ones. Raises UnknownNameError for an unknown job."""
        job_id, failed = observation.job_id, observation.kind is ObservationKind.FAILED
        if job_id in self._totals and (not self._running() or (not failed and self._is_early(observation))):
            return
        stopped = self._runs.plan().stopped
        self._runs.observe(observation)
        if failed:
            if job_id in self._counted - stopped and self._replaced < self._trials:
                self._counted.remove(job_id)
                self._replaced += 1
            self._candidates = [each for each in self._candidates if each != job_id]
        self._choose()

    def plan(self) -> TunerPlan:
        """Return the present decision."""
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
        """Whether the observation is of a job before it was chosen, so that no run of it can have reported it."""
        job_id, iteration = observation.job_id, observation.iteration
        if job_id in self._candidates:
            self._skipped_until[job_id] = max(iteration, self._skipped_until.get(job_id, iteration))
        return iteration <= self._skipped_until.get(job_id, -1)

    def _left(self) -> int:
        """Return the number of trials that have not started."""
        return min(self._trials - len(self._counted), len(self._candidates))

    def _choose(self) -> None:
        for _ in range(min(self._parallel - len(self._running()), self._left())):
            job_id = self._search.choose(self._candidates)
            self._candidates.remove(job_id)
            self._counted.add(job_id)

    def _phases_left(self, running: Sequence[str]) -> tuple[Phase, ...]:
        """Return a phase of the running jobs, then phases of up to `parallel` further trials."""
        if not running:
            return ()
        phases = [Phase(jobs=len(running), iterations=max(self._totals[job_id] for job_id in running))]
        left, longest = self._left(), max((self._totals[job_id] for job_id in self._candidates), default=0)
        waves = [min(self._parallel, left - begun) for begun in range(0, left, self._parallel)]
        return (*phases, *(Phase(jobs=jobs, iterations=longest) for jobs in waves))
