"""The tuner that lets every job run to its end: one phase, the best by loss."""

from __future__ import annotations

from collections.abc import Sequence

from am.tuners.phased import PhasedTuner, Rung, longest
from themis.apps import JobSpec

NAME = "single"


def single(jobs: Sequence[JobSpec]) -> PhasedTuner:
    """All jobs run to their `iterations_total` in one phase."""
    return PhasedTuner(NAME, jobs, (Rung(sizes=(len(jobs),), target=longest(jobs)),))
