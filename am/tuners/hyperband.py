"""Hyperband: several brackets of successive halving. Later brackets start with fewer jobs and longer first phases.

Example: eta = 3, R = 9 units, so s_max = 2, and each job has 90 iterations. The table of brackets is

    bracket   jobs per rung   iterations at the rungs' ends
    s = 2     9, 3, 1         10, 30, 90
    s = 1     5, 1                30, 90
    s = 0     3                       90

Source: Li, Jamieson, DeSalvo, Rostamizadeh, Talwalkar, "Hyperband", JMLR 18(185), 2018, algorithm 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import cycle

from am.tuners.phased import PhasedTuner, Rung, check_settings, longest
from themis.apps import JobSpec
from themis.values import Value

NAME = "hyperband"
DEFAULT_ETA = 3


class Bracket(Value, frozen=True, kw_only=True):
    """A run of successive halving.

    Attributes:
        s: The paper's index: the number of cuts in the bracket.
        sizes: Jobs in its rung i = 0, .., s, which ends at `job.iterations / eta**(s - i)` iterations.
    """

    s: int
    sizes: tuple[int, ...]


def table(s_max: int, eta: int) -> tuple[Bracket, ...]:
    """Return the brackets s = s_max, .., 0 of one loop of algorithm 1.

    Bracket s starts with n = ceil((s_max + 1) / (s + 1) * eta**s) jobs, and has floor(n / eta**i) in rung i.
    """
    brackets = []
    for s in range(s_max, -1, -1):
        jobs = -(-(s_max + 1) * eta**s // (s + 1))
        brackets.append(Bracket(s=s, sizes=tuple(jobs // eta**i for i in range(s + 1))))
    return tuple(brackets)


def fill_brackets(jobs: int, s_max: int, eta: int) -> tuple[Bracket, ...]:
    """Fill brackets with jobs in the table's order, one after the other. Repeats the table if jobs are left.

    The last bracket may get fewer jobs than its size. Then one job in `eta` goes on, at least one.

    Example: 11 jobs, s_max = 2, eta = 3. The first bracket gets 9 jobs, the second the other 2: sizes (9, 3, 1), (2,
    1).
    """
    brackets: list[Bracket] = []
    for bracket in cycle(table(s_max, eta)):
        if jobs <= 0:
            return tuple(brackets)
        if jobs < bracket.sizes[0]:
            bracket = Bracket(s=bracket.s, sizes=tuple(max(1, jobs // eta**i) for i in range(bracket.s + 1)))
        brackets.append(bracket)
        jobs -= bracket.sizes[0]
    raise AssertionError("a cycle has no end")


def hyperband(jobs: Sequence[JobSpec], *, eta: int = DEFAULT_ETA, max_resource: int | None = None) -> PhasedTuner:
    """Return the tuner for these jobs.

    The paper's resource R is `job.iterations`. One unit of it is `job.iterations / max_resource` iterations, and a job
    that is never stopped runs `job.iterations`. All brackets run in the same phases. In phase k, every remaining job
    runs to `job.iterations / eta**(s_max - k)` iterations. Bracket s makes its first cut after phase s_max - s.

    Args:
        jobs: The jobs of the app. They fill the brackets in this order.
        eta: One job in `eta` goes on. At least 2.
        max_resource: R in units. None: the largest power of `eta` whose table needs at most the number of jobs, and at
            most as many units as the longest job has iterations.

    Raises:
        InputError: A setting out of range.
    """
    check_settings(NAME, jobs, eta=eta, max_resource=max_resource)
    total = longest(jobs)
    s_max = _largest_s(len(jobs), total, eta) if max_resource is None else _whole_log(max_resource, eta)
    brackets = fill_brackets(len(jobs), s_max, eta)
    ids = iter([job.job_id for job in jobs])
    members = [[next(ids) for _ in range(bracket.sizes[0])] for bracket in brackets]
    return PhasedTuner(NAME, jobs, _rungs(brackets, s_max, eta, total), members)


def _whole_log(value: int, base: int) -> int:
    """Return floor(log_base(value)) without rounding errors."""
    power = 0
    while base ** (power + 1) <= value:
        power += 1
    return power


def _largest_s(jobs: int, total: int, eta: int) -> int:
    s_max = 0
    while eta ** (s_max + 1) <= total and sum(bracket.sizes[0] for bracket in table(s_max + 1, eta)) <= jobs:
        s_max += 1
    return s_max


def _rungs(brackets: Sequence[Bracket], s_max: int, eta: int, total: int) -> tuple[Rung, ...]:
    """Return the common phases of all brackets."""
    return tuple(
        Rung(
            # Before its first cut, a bracket has all its jobs.
            sizes=tuple(bracket.sizes[max(0, phase - (s_max - bracket.s))] for bracket in brackets),
            target=max(1, total // eta ** (s_max - phase)),
        )
        for phase in range(s_max + 1)
    )
