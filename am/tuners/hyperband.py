"""Hyperband: brackets of successive halving that begin with ever fewer jobs and ever longer first phases.

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
        s: The paper's index: how often the bracket is cut.
        sizes: Jobs in its rung i = 0, .., s, which ends at `job.iterations / eta**(s - i)` iterations.
    """

    s: int
    sizes: tuple[int, ...]


def table(s_max: int, eta: int) -> tuple[Bracket, ...]:
    """The brackets of one loop, s = s_max, .., 0, as algorithm 1 has them.

    Bracket s begins with n = ceil((s_max + 1) / (s + 1) * eta**s) jobs, and floor(n / eta**i) are in its rung i.
    """
    brackets = []
    for s in range(s_max, -1, -1):
        jobs = -(-(s_max + 1) * eta**s // (s + 1))
        brackets.append(Bracket(s=s, sizes=tuple(jobs // eta**i for i in range(s + 1))))
    return tuple(brackets)


def deal(jobs: int, s_max: int, eta: int) -> tuple[Bracket, ...]:
    """Deal jobs to brackets in the table's order, each filled before the next is begun.

    After the last bracket of the table comes its first again. A bracket that there are too few jobs for has those that
    are left, and one in `eta` goes on, at least one.
    """
    dealt: list[Bracket] = []
    for bracket in cycle(table(s_max, eta)):
        if jobs <= 0:
            return tuple(dealt)
        if jobs < bracket.sizes[0]:
            bracket = Bracket(s=bracket.s, sizes=tuple(max(1, jobs // eta**i) for i in range(bracket.s + 1)))
        dealt.append(bracket)
        jobs -= bracket.sizes[0]
    raise AssertionError("a cycle has no end")


def hyperband(jobs: Sequence[JobSpec], *, eta: int = DEFAULT_ETA, max_resource: int | None = None) -> PhasedTuner:
    """The tuner for these jobs.

    R is `job.iterations`: a unit of the paper's resource is `job.iterations / max_resource` iterations, and a job that
    is never stopped runs `job.iterations`. Brackets run together and in step: phase k brings every job left to
    `job.iterations / eta**(s_max - k)` iterations; bracket s is cut from phase s_max - s on.

    Args:
        jobs: The jobs of the app, dealt to the brackets in their order.
        eta: One job in `eta` goes on; 2 or more.
        max_resource: R in units. None: the largest power of `eta` whose table needs no more jobs than there are, and no
            more units than the longest job has iterations.

    Raises:
        InputError: A setting out of range.
    """
    check_settings(NAME, jobs, eta=eta, max_resource=max_resource)
    total = longest(jobs)
    s_max = _largest_s(len(jobs), total, eta) if max_resource is None else _whole_log(max_resource, eta)
    brackets = deal(len(jobs), s_max, eta)
    return PhasedTuner(NAME, jobs, _rungs(brackets, s_max, eta, total), _members(brackets, jobs))


def _whole_log(value: int, base: int) -> int:
    """floor(log_base(value)), without the rounding of logarithms."""
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
    """The phases of all brackets in step."""
    return tuple(
        Rung(
            # A bracket that is not cut yet has all its jobs.
            sizes=tuple(bracket.sizes[max(0, phase - (s_max - bracket.s))] for bracket in brackets),
            target=max(1, total // eta ** (s_max - phase)),
        )
        for phase in range(s_max + 1)
    )


def _members(brackets: Sequence[Bracket], jobs: Sequence[JobSpec]) -> list[list[str]]:
    ids = iter([job.job_id for job in jobs])
    return [[next(ids) for _ in range(bracket.sizes[0])] for bracket in brackets]
