"""Successive halving: each phase has fewer jobs, and runs them for longer (docs/reference/tuners.md)."""

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
    """Return the tuner for these jobs.

    Phase i has `max(1, floor(jobs / eta**i))` jobs, and the last phase has one. Its cumulative target is
    `first_iterations * eta**i`, at most the largest `iterations_total` of the jobs. Without `first_iterations` it is
    `max(1, floor(iterations_total / eta**(last - i)))`, so that the last phase ends exactly at `iterations_total`.
    Phases that would add no iteration are merged into the previous one.

    Example: 8 jobs of 80 iterations, eta 2. The phases have 8, 4, 2 and 1 jobs, and end at iterations 10, 20, 40, 80.

    Args:
        jobs: The jobs of the app.
        eta: Each phase has `eta` times fewer jobs. At least 2, default 2.
        first_iterations: Iterations of the first phase.
        phases: Budgets as text, instead of `eta` and `first_iterations`. `4x8,2x16,1x36` means phases of 4, 2 and 1
            jobs that run 8, 16 and 36 further iterations. The first phase must have all jobs.

    Raises:
        InputError: Settings are out of range, malformed or in conflict.
    """
    check_settings(NAME, jobs, eta=eta, first_iterations=first_iterations, phases=phases or None)
    total = longest(jobs)
    if phases:
        return PhasedTuner(NAME, jobs, _explicit_rungs(phases, len(jobs), total))
    rungs = geometric_rungs(len(jobs), total, DEFAULT_ETA if eta is None else eta, first_iterations)
    return PhasedTuner(NAME, jobs, rungs)


def geometric_rungs(jobs: int, total: int, eta: int, first: int | None) -> tuple[Rung, ...]:
    """Return rungs of `jobs`, `jobs / eta`, .. and finally one job. See `successive_halving`.

    Args:
        jobs: Number of jobs, at least 1.
        total: Iterations of the longest job.
        eta: At least 2, which `check_settings` ensures. With 1 the rungs would never become smaller.
        first: Iterations of the first rung. None: chosen so that the last rung ends at `total`.
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
