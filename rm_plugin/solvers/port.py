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
"""The least gap of an unproven solution; a gap of 0 means proven."""


class SolveStatus(StrEnum):
    """How a solve ended. A solution that is not proven optimal has a status, never a warning."""

    OPTIMAL = "optimal"
    TIME_LIMIT = "time_limit"
    LICENCE = "licence"
    """The market exceeds the solver's licence: no bidder wins, and the optimum is unknown."""


class Win(Value, frozen=True, kw_only=True):
    """The row that a bidder wins, by its index in the bid, and its gangs on machines (pinned GPUs last).

    `gangs` is empty in answers to `without`: no app will hold those GPUs, so they need no places.
    """

    row: int
    gangs: tuple[PlacedGang, ...]


class Solution(Value, frozen=True, kw_only=True):
    """The chosen rows. Bidders without a win are absent.

    `log_objective` is the sum of log values over all bidders (the empty bundle's for those that win nothing),
    recomputed from the chosen rows. Under `lexicographic` it sums over the `positive` bidders of positive value.
    `gap` is an upper bound on what the log objective can still gain, 0 if optimal. `states` is the number of states of
    a search (None if the solver has none); `fallback` says whether the ladder's programme decided after a search.
    `others_keep`, in an answer to `without`: all others provably win the same rows as with the bidder.
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
    """Chooses at most one row per bidder, no GPU twice, maximising the product of values (NSDI'20, section 3.3).

    Example: four free GPUs. App a has value 0.5 with nothing, 0.8 with two GPUs and 1.0 with four; app b has 0.2, 0.6
    and 0.8. Two GPUs each make 0.8 * 0.6 = 0.48. All for a make 1.0 * 0.2, all for b 0.5 * 0.8 = 0.4.
    """

    name: str

    def solve(self, market: Market, time_limit_s: float) -> Solution:
        """Solve one market within `time_limit_s` seconds."""
        ...

    def without(self, market: Market, app_ids: Sequence[str], time_limit_s: float) -> Mapping[str, Solution]:
        """Solve the market once without each of these bidders, all within `time_limit_s` seconds.

        It is called right after `solve` with the same market. So a solver can share the work of the first problem, and
        use the time that it left.
        """
        ...


def each_alone(
    solver: WinnerDetermination, market: Market, app_ids: Sequence[str], time_limit_s: float
) -> dict[str, Solution]:
    """`without` for solvers that share nothing: problem after problem, each with an equal part of the time left."""
    deadline_s = time.monotonic() + time_limit_s
    solutions = {}
    for number, app_id in enumerate(app_ids):
        part_s = max(0.0, deadline_s - time.monotonic()) / (len(app_ids) - number)
        solutions[app_id] = solver.solve(market.without(app_id), part_s)
    return solutions
