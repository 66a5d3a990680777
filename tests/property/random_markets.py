"""Random markets for the property tests: those of the auditor, with a check that asserts."""

from themis_lab.audit.feasibility import infeasible
from themis_lab.audit.recipes import Recipe, random_market

__all__ = ["Recipe", "check_feasible", "random_market"]


def check_feasible(market, wins) -> None:
    """Wins use no GPU twice, honour every row's gangs by size, level, slot and unit, and pinned GPUs exactly."""
    assert infeasible(market, wins) == []
