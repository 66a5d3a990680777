"""The Tuner port: it decides how far each job of an app runs (paper, Figure 7: jobs in phase, jobs remaining)."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Protocol

from msgspec import field

from themis.values import Value


class Phase(Value, frozen=True, kw_only=True):
    """A phase of the search: `jobs` jobs run `iterations` more iterations each."""

    jobs: int
    iterations: int


class ObservationKind(StrEnum):
    """The kind of a report to a tuner about a job."""

    PROGRESS = "progress"
    TARGET_REACHED = "target_reached"
    FAILED = "failed"


class Observation(Value, frozen=True, kw_only=True):
    """A job's loss at an iteration. `loss` is NaN if the job diverged or logged none.

    TARGET_REACHED comes once per target. FAILED means that the job has failed for good.
    """

    kind: ObservationKind
    job_id: str
    iteration: int
    loss: float


class TunerPlan(Value, frozen=True, kw_only=True):
    """A tuner's present decision.

    Example: successive halving of 4 jobs of 40 iterations, after phase 0. `phase` is 1, `phases` are (2 jobs, 10
    iterations) and (1 job, 20 iterations), `targets` are {"j0": 20, "j2": 20}, `stopped` is {"j1", "j3"}.

    Attributes:
        phase: Number of completed phases. A tuner without phases stays at 0.
        phases: The current phase and the later ones. A tuner without phases puts the work that it expects beyond
            `targets` into later phases. The first phase has all jobs of the app, except for a tuner that runs only a
            few jobs at a time: there it has as many as run at once, and later phases have the others.
        targets: The jobs that should run, with the cumulative iteration that each should reach.
        stopped: The jobs that lost. If all other jobs fail, the tuner reinstates one of them.
        finished: Whether the search is over.
        best: The best job so far.
        latest: For jobs in `targets` that are expected to stop early, the latest iteration at which they may stop. Rho
            counts their work up to there (docs/reference/tuners.md, Performance curve).
        loss_every: Iterations between losses of a running job that the tuner needs. A job may log them less often.
            0 for a tuner that needs only reached targets.
    """

    phase: int
    phases: tuple[Phase, ...]
    targets: Mapping[str, int]
    stopped: frozenset[str]
    finished: bool
    best: str | None
    latest: Mapping[str, int] = field(default_factory=dict)
    loss_every: int = 0

    @property
    def phase_count(self) -> int:
        """All phases, completed ones included. Once the search is over, the last one that ran is in `phase` only."""
        return self.phase + max(len(self.phases), int(self.finished and self.phase > 0))


class Tuner(Protocol):
    """A deterministic state machine: equal sequences of observations give equal plans."""

    name: str

    def observe(self, observation: Observation) -> None:
        """Process one observation. Ignores repeated ones. Raises UnknownNameError for an unknown job."""
        ...

    def plan(self) -> TunerPlan:
        """Return the present decision."""
        ...
