"""Feasible: no GPU is used twice, gangs match their rows, and pinned GPUs are exactly those named."""

from __future__ import annotations

from themis_lab.audit.case import Case
from themis_lab.audit.feasibility import infeasible


def feasible(case: Case) -> list[str]:
    """Wins match their rows and the free GPUs, even if a solver ran out of time."""
    return infeasible(case.market, case.outcome.wins)
