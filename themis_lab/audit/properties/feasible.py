"""Feasible: no GPU twice, every gang as asked, pinned GPUs exactly."""

from __future__ import annotations

from themis_lab.audit.case import Case
from themis_lab.audit.feasibility import infeasible


def feasible(case: Case) -> list[str]:
    """Wins honour their rows and the free GPUs, also where a solver ran out of time."""
    return infeasible(case.market, case.outcome.wins)
