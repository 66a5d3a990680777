"""The port of winner determination: a market in, the product-maximising choice of rows out."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Protocol

from msgspec import field

from themis.bids import Market, PlacedGang
from themis.values import Value

SMALLEST_GAP = 1e-12
"""What the gap of an optimum that is not proven is at least: 0 means proven."""


class SolveStatus(StrEnum):
    """How a solve ended; a solve that is not optimal is a status, never a warning."""

    OPTIMAL = "optimal"
    TIME_LIMIT = "time_limit"
    LICENCE = "licence"
    """The market is larger than the solver's licence allows: nobody wins, nothing is known of the optimum."""


class Win(Value, frozen=True, kw_only=True):
    """The row that a bidder wins, by its index in the bid, and its gangs on machines (pinned GPUs last).

    `gangs` is empty in answers to `without`: nobody will hold those GPUs, so they need not be placed.
    """

    row: int
    gangs: tuple[PlacedGang, ...]


class Solution(Value, frozen=True, kw_only=True):
    """The chosen rows. Bidders without a win are absent.

    `log_objective` is the sum of log values over all bidders (the empty bundle's for those that win nothing),
    recomputed from the chosen rows. Under `lexicographic` it sums over the `positive` bidders of positive value.
    `gap` is the absolute gap of the log objective that the solver could not close, 0 when optimal. `states` counts what
    a search looked at, where the solver tells; `fallback` that another solver had to decide. `others_keep` tells of an
    answer to `without` that all others are known to win the rows that they win with the bidder.
    """

    status: SolveStatus
    gap: float
    log_objective: float
    positive: int
    wins: Mapping[str, Win] = field(default_factory=dict)
    states: int | None = None
    fallback: bool = False
    others_keep: bool = False


class WinnerDetermination(Protocol):
    """Chooses at most one row a bidder, no GPU twice, maximising the product of values (themis.md, section 3)."""

    name: str

    def solve(self, market: Market, time_limit_s: float) -> Solution:
        """Solve one market within `time_limit_s` seconds."""
        ...

    def without(self, market: Market, app_ids: Sequence[str], time_limit_s: float) -> Mapping[str, Solution]:
        """Solve the market once without each of these bidders, all within `time_limit_s` seconds.

        Called right after `solve` with the same market, so that a solver can share the work of the first problem, and
        use up what that left of its own time.
        """
        ...


def each_alone(
    solver: WinnerDetermination, market: Market, app_ids: Sequence[str], time_limit_s: float
) -> dict[str, Solution]:
    """`without` for solvers that share nothing: one problem after the other, each with its part of the time left."""
    deadline_s = time.monotonic() + time_limit_s
    solutions = {}
    for number, app_id in enumerate(app_ids):
        # What one takes beyond its part, the others go without.
        part_s = max(0.0, deadline_s - time.monotonic()) / (len(app_ids) - number)
        solutions[app_id] = solver.solve(market.without(app_id), part_s)
    return solutions
