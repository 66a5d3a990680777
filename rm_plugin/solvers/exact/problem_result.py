"""The result of one problem's search, and its translation to the terms of the port."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from enum import StrEnum

from msgspec import field

from rm_plugin.solvers.exact.market_arrays import Ints, MarketArrays
from rm_plugin.solvers.port import SMALLEST_GAP, Solution, SolveStatus, Win
from rm_plugin.solvers.realise import by_nearness, pinned_gangs
from themis.bids import PlacedGang
from themis.values import Value


class SearchStatus(StrEnum):
    """How the search ended for one problem. Only the last status leaves work for the next step of the ladder."""

    OPTIMAL = "optimal"
    OUT_OF_TIME = "out_of_time"
    UNDECIDED = "undecided"
    """The search kept too many states, or found neither places nor a cut for the best choice."""


class ProblemResult(Value, frozen=True, kw_only=True):
    """The best choice found for one problem. It is feasible whatever the status says.

    Attributes:
        skip: Position of the bidder left out, -1 for none.
        row_of: The winning row by bidder position.
        status: How the search ended; OPTIMAL if and only if `gap` is 0.
        gap: Upper bound on what the log objective can still gain.
        gangs: Placed gangs by bidder position, without pinned ones; empty in problems without a bidder.
        states: Number of states that the searches kept.
        open_rows: If UNDECIDED, the rows that can be part of a better choice (reduced-cost fixing).
    """

    skip: int
    row_of: Mapping[int, int]
    status: SearchStatus = SearchStatus.OPTIMAL
    gap: float = 0.0
    gangs: Mapping[int, tuple[PlacedGang, ...]] = field(default_factory=dict)
    states: int = 0
    open_rows: tuple[int, ...] = ()


def rows_by_bidder(choice: Ints) -> dict[int, int]:
    """Convert a choice (row by bidder, -1 for none) to rows by bidder position."""
    return {bidder: row for bidder, row in enumerate(choice.tolist()) if row >= 0}


def value_of(market: MarketArrays, row_of: Mapping[int, int]) -> int:
    """Sum of the gains of these rows, in whole units."""
    return sum(int(market.rows.gain[row]) for row in row_of.values())


def gap_of(market: MarketArrays, row_of: Mapping[int, int], bound: int) -> float:
    """Distance of these rows' log objective from an upper bound in whole units; 0.0 if they reach it."""
    open_gap = bound - value_of(market, row_of)
    return max(open_gap / market.unit, SMALLEST_GAP) if open_gap > 0 else 0.0


def unproven(market: MarketArrays, result: ProblemResult, bound: int, status: SearchStatus) -> ProblemResult:
    """The result with its gap to an upper bound in whole units; OPTIMAL if the choice reaches the bound after all."""
    gap = gap_of(market, result.row_of, bound)
    return ProblemResult(
        skip=result.skip,
        row_of=result.row_of,
        status=status if gap > 0.0 else SearchStatus.OPTIMAL,
        gap=gap,
        gangs=result.gangs,
        states=result.states,
    )


def no_winners(market: MarketArrays, skip: int) -> ProblemResult:
    """The choice without winners, bounded by the best row of each bidder; for a market not even read in time."""
    rows = market.rows
    best = {
        bidder: int(first)
        for bidder, (first, end) in enumerate(zip(rows.row_start, rows.row_start[1:], strict=False))
        if end > first and bidder != skip
    }
    nothing = ProblemResult(skip=skip, row_of={})
    return unproven(market, nothing, value_of(market, best), SearchStatus.OUT_OF_TIME)


def full_choice_without(market: MarketArrays, full: ProblemResult, skip: int, bound: int) -> ProblemResult:
    """The full market's choice less one bidder's row. It fits without a search, so it needs no time.

    Args:
        market: The market.
        full: The result with all bidders.
        skip: Position of the bidder left out.
        bound: Upper bound on the value of the problem without it, in whole units.
    """
    row_of = {bidder: row for bidder, row in full.row_of.items() if bidder != skip}
    # A problem without a bidder is worth no more than the full one.
    most = value_of(market, full.row_of) + math.ceil(full.gap * market.unit)
    return unproven(market, ProblemResult(skip=skip, row_of=row_of), min(bound, most), SearchStatus.OUT_OF_TIME)


def as_solution(market: MarketArrays, result: ProblemResult, *, placed: bool) -> Solution:
    """Convert a result to a solution; `placed` says whether its wins have places."""
    logs = log_values(market, result.row_of)
    if result.skip >= 0:
        del logs[result.skip]
    wins = _placed_wins(market, result) if placed else unplaced_wins(market, result.row_of)
    return make_solution(logs, wins, gap=result.gap, states=result.states)


def make_solution(
    logs: Sequence[float | None],
    wins: Mapping[str, Win],
    *,
    gap: float = 0.0,
    states: int = 0,
    others_keep: bool = False,
) -> Solution:
    """Build a solution from the log value of each bidder. A log value is None if the value is 0."""
    positive = [log for log in logs if log is not None]
    return Solution(
        status=SolveStatus.OPTIMAL if gap == 0.0 else SolveStatus.TIME_LIMIT,
        gap=gap,
        log_objective=math.fsum(positive),
        positive=len(positive),
        wins=wins,
        states=states,
        others_keep=others_keep,
    )


def log_values(market: MarketArrays, row_of: Mapping[int, int]) -> list[float | None]:
    """The log value of each bidder if it wins these rows. It is None if the value is 0."""
    logs, known = market.empty_logs.copy(), market.known_logs
    for bidder, row in row_of.items():
        log = known.get(row)
        if log is None:
            log = known[row] = math.log(market.bids[bidder].rows[market.row_index[row]].value)
        logs[bidder] = log
    return logs


def _placed_wins(market: MarketArrays, result: ProblemResult) -> dict[str, Win]:
    wins = {}
    for bidder, row in sorted(result.row_of.items()):
        bid, index = market.bids[bidder], market.row_index[row]
        pinned = pinned_gangs(bid.rows[index].pinned_parts, market.rack_of)
        wins[bid.app_id] = Win(row=index, gangs=(*sorted(result.gangs[bidder], key=by_nearness), *pinned))
    return wins


def unplaced_wins(market: MarketArrays, row_of: Mapping[int, int]) -> dict[str, Win]:
    """The wins of rows by bidder position, without places."""
    app_ids, unplaced = market.app_ids, market.unplaced
    return {app_ids[bidder]: unplaced[row_of[bidder]] for bidder in sorted(row_of)}
