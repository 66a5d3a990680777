"""The Tuner port: what an app's jobs should run next (the paper's Figure 7: jobs in phase, phases, jobs remaining)."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Protocol

from msgspec import field

from themis.values import Value


class Phase(Value, frozen=True, kw_only=True):
    """A phase of the search: `jobs` jobs run `iterations` further iterations each."""

    jobs: int
    iterations: int


class ObservationKind(StrEnum):
    """What a tuner is told of a job."""

    PROGRESS = "progress"
    TARGET_REACHED = "target_reached"
    FAILED = "failed"


class Observation(Value, frozen=True, kw_only=True):
    """A job's loss at an iteration. `loss` is NaN when the job diverged or logged none.

    TARGET_REACHED is told once for each target; FAILED when the job is given up for good.
    """

    kind: ObservationKind
    job_id: str
    iteration: int
    loss: float


class TunerPlan(Value, frozen=True, kw_only=True):
    """What a tuner wants now.

    `targets` holds, for every job of the current phase that is still to run, the cumulative iteration to reach in it.
    `phases` are the current phase and the later ones; `stopped` the jobs that lost; `best` the leader so far. A job
    that lost is taken back, out of `stopped` into `targets`, where all that went on have failed.

    `phase` counts the barriers passed. A tuner without barriers stays in phase 0; its later phases are the work that it
    still expects beyond `targets`. Every job of the app takes part in the first phase; of a tuner that tries them a few
    at a time as many as run at once, and later phases hold the others. `latest` holds, for jobs of
    `targets` that are foreseen to stop before their target, the latest iteration at which they may: they count to there
    in rho (themis.md, section 2, performance-curve stopping), and run on to their target if they are not stopped.
    `hears_every` is 0 for a tuner that goes by targets alone; else it wants to hear of a running job's loss once in so
    many iterations, or as often as there are losses.
    """

    phase: int
    phases: tuple[Phase, ...]
    targets: Mapping[str, int]
    stopped: frozenset[str]
    finished: bool
    best: str | None
    latest: Mapping[str, int] = field(default_factory=dict)
    hears_every: int = 0


class Tuner(Protocol):
    """A deterministic state machine: the same observations in the same order give the same plan."""

    name: str

    def observe(self, observation: Observation) -> None:
        """Take in one observation; unknown jobs raise UnknownNameError, repeated observations change nothing."""
        ...

    def plan(self) -> TunerPlan:
        """What should run now."""
        ...
