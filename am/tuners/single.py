"""The tuner that runs every job to its end, in one phase. The best job is the one with the lowest loss."""

from __future__ import annotations

from collections.abc import Sequence

from am.tuners.phased import PhasedTuner, Rung, longest
from themis.apps import JobSpec

NAME = "single"


def single(jobs: Sequence[JobSpec]) -> PhasedTuner:
    """Return a tuner that runs all jobs to their `iterations_total` in one phase."""
    return PhasedTuner(NAME, jobs, (Rung(sizes=(len(jobs),), target=longest(jobs)),))
