"""Successive halving: phases of ever fewer jobs that run ever longer (themis.md, sections 2 and 5)."""

from __future__ import annotations

import re
from collections.abc import Sequence

from am.tuners.phased import PhasedTuner, Rung, at_least, longest
from themis.apps import JobSpec
from themis.errors import InputError

NAME = "successive_halving"
DEFAULT_ETA = 2
_PHASE = re.compile(r"\s*([1-9]\d{0,8})\s*x\s*([1-9]\d{0,11})\s*")


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
    total = longest(jobs)
    if phases:
        if eta is not None or first_iterations is not None:
            remedy = "leave tuner.eta and tuner.first_iterations out"
            raise InputError("tuner.phases stands in place of the other settings", value=phases, remedy=remedy)
        return PhasedTuner(NAME, jobs, _explicit_rungs(phases, len(jobs), total))
    rungs = geometric_rungs(len(jobs), total, DEFAULT_ETA if eta is None else eta, first_iterations)
    return PhasedTuner(NAME, jobs, rungs)


def geometric_rungs(jobs: int, total: int, eta: int, first: int | None) -> tuple[Rung, ...]:
    """Rungs of `jobs`, `jobs / eta`, .. and at last one job; targets grow by `eta`, see `successive_halving`."""
    at_least(eta=(eta, 2), first_iterations=(1 if first is None else first, 1))
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
    rungs: list[Rung] = []
    target = 0
    for part in text.split(","):
        match = _PHASE.fullmatch(part)
        if match is None:
            raise InputError(
                "tuner.phases is malformed", value=part, remedy="write JOBSxITERATIONS, as in 4x8,2x16,1x36"
            )
        target += int(match[2])
        rungs.append(Rung(sizes=(int(match[1]),), target=target))
    sizes = [rung.sizes[0] for rung in rungs]
    if sizes != sorted(sizes, reverse=True):
        remedy = "order them by falling jobs"
        raise InputError("tuner.phases has a phase of more jobs than the one before", value=text, remedy=remedy)
    if sizes[0] != jobs:
        raise InputError("tuner.phases does not begin with all jobs", value=text, remedy=f"start with {jobs}x..")
    if target > total:
        raise InputError(
            "tuner.phases run beyond job.iterations", value=text, remedy=f"raise job.iterations to {target}"
        )
    return tuple(rungs)
