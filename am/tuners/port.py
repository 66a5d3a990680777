"""The Tuner port: what an app's jobs should run next (the paper's Figure 7: jobs in phase, phases, jobs remaining)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """A phase of the search: `jobs` jobs run `iterations` further iterations each."""

    jobs: int
    iterations: int


class ObservationKind(StrEnum):
    """What a tuner is told of a job."""

    PROGRESS = "progress"
    TARGET_REACHED = "target_reached"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """A job's loss at an iteration. `loss` is NaN when the job diverged or logged none.

    TARGET_REACHED is told once for each target; FAILED when the job is given up for good.
    """

    kind: ObservationKind
    job_id: str
    iteration: int
    loss: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TunerPlan:
    """What a tuner wants now.

    `targets` holds, for every job of the current phase that is still to run, the cumulative iteration to reach in it.
    `phases` are the current phase and the later ones; `stopped` the jobs that lost; `best` the leader so far.
    """

    phase: int
    phases: tuple[Phase, ...]
    targets: Mapping[str, int]
    stopped: frozenset[str]
    finished: bool
    best: str | None


class Tuner(Protocol):
    """A deterministic state machine: the same observations in the same order give the same plan."""

    name: str

    def observe(self, observation: Observation) -> None:
        """Take in one observation; unknown jobs raise UnknownNameError, repeated observations change nothing."""
        ...

    def plan(self) -> TunerPlan:
        """What should run now."""
        ...
