"""Successive halving: phases of ever fewer jobs that run ever longer (themis.md, sections 2 and 5)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from am.tuners.phased import PhasedTuner, Rung, check_settings, longest
from themis.apps import JobSpec
from themis.config.tuner_settings import read_phases

NAME = "successive_halving"
DEFAULT_ETA = 2


def successive_halving(
    jobs: Sequence[JobSpec], *, eta: int | None = None, first_iterations: int | None = None, phases: str = ""
) -> PhasedTuner:
    """The tuner for these jobs.

    Phase i has `max(1, floor(jobs / eta**i))` jobs, the last phase one. Its cumulative target is
    `first_iterations * eta**i`, capped at the largest `iterations_total` of the jobs; without `first_iterations` it is
    `max(1, floor(iterations_total / eta**(last - i)))`, so that the last phase ends at `iterations_total` exactly.
    Phases that would add no iteration are merged into the one before.

    Args:
        jobs: The jobs of the app.
        eta: How many times fewer jobs each phase has; 2 or more, default 2.
        first_iterations: Iterations of the first phase.
        phases: In place of the two: budgets as text, `4x8,2x16,1x36` being phases of 4, 2 and 1 jobs that run 8, 16 and
            36 further iterations. It starts with as many jobs as there are.

    Raises:
        InputError: Settings out of range, malformed or in conflict.
    """
    check_settings(NAME, jobs, eta=eta, first_iterations=first_iterations, phases=phases or None)
    total = longest(jobs)
    if phases:
        return PhasedTuner(NAME, jobs, _explicit_rungs(phases, len(jobs), total))
    rungs = geometric_rungs(len(jobs), total, DEFAULT_ETA if eta is None else eta, first_iterations)
    return PhasedTuner(NAME, jobs, rungs)


def geometric_rungs(jobs: int, total: int, eta: int, first: int | None) -> tuple[Rung, ...]:
    """Rungs of `jobs`, `jobs / eta`, .. and at last one job; targets grow by `eta`, see `successive_halving`.

    Args:
        jobs: One at least.
        total: Iterations of the longest job.
        eta: Two at least, as `check_settings` sees to: by one the rungs would never grow smaller.
        first: Iterations of the first rung; None: so that the last ends at `total`.
    """
    sizes = [jobs]
    while sizes[-1] >= eta:
        sizes.append(sizes[-1] // eta)
    if sizes[-1] > 1:
        sizes.append(1)
    last = len(sizes) - 1
    if first is None:
        targets = [max(1, total // eta ** (last - i)) for i in range(len(sizes))]
    else:
        targets = [min(total, first * eta**i) for i in range(len(sizes))]
    return tuple(Rung(sizes=(size,), target=target) for size, target in zip(sizes, targets, strict=True))


def _explicit_rungs(text: str, jobs: int, total: int) -> tuple[Rung, ...]:
    phases = read_phases(text, jobs=jobs, iterations=total, source=f"tuner {NAME}")
    targets = accumulate(further for _, further in phases)
    return tuple(Rung(sizes=(size,), target=target) for (size, _), target in zip(phases, targets, strict=True))
