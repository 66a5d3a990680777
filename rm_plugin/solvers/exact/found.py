"""What one problem's search found, and the same in the terms of the port."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from msgspec import field

from rm_plugin.solvers.exact.rows import Ints, MarketArrays
from rm_plugin.solvers.port import SMALLEST_GAP, Solution, SolveStatus, Win
from rm_plugin.solvers.realise import by_nearness, pinned_gangs
from themis.bids import PlacedGang
from themis.values import Value


class Found(Value, frozen=True, kw_only=True):
    """The choice found in one problem.

    Attributes:
        skip: Position of the bidder left out, -1 for none.
        row_of: The winning row by bidder position.
        gap: How much higher the log objective may be; 0 when the choice is proven optimal.
        gangs: Gangs in their places by bidder position, pinned ones aside; empty where nobody needs them.
        states: States that the searches kept.
        fallback: Whether HiGHS had to decide.
    """

    skip: int
    row_of: Mapping[int, int]
    gap: float = 0.0
    gangs: Mapping[int, tuple[PlacedGang, ...]] = field(default_factory=dict)
    states: int = 0
    fallback: bool = False


def rows_by_bidder(choice: Ints) -> dict[int, int]:
    """A choice (row by bidder, -1 for none) as rows by bidder position."""
    return {bidder: row for bidder, row in enumerate(choice.tolist()) if row >= 0}


def value_of(market: MarketArrays, row_of: Mapping[int, int]) -> int:
    """What rows by bidder gain together, in whole units."""
    return sum(int(market.rows.gain[row]) for row in row_of.values())


def gap_of(market: MarketArrays, row_of: Mapping[int, int], bound: int) -> float:
    """How much higher than these rows' the log objective may be, given that nothing gains more than `bound`."""
    open_gap = bound - value_of(market, row_of)
    return max(open_gap / market.unit, SMALLEST_GAP) if open_gap > 0 else 0.0


def less_a_row(market: MarketArrays, full: Found, skip: int, bound: int) -> Found:
    """The full market's choice less a bidder's row, which has its places for sure: for when no time is left.

    Args:
        market: The market.
        full: What was found with all bidders.
        skip: Position of the bidder left out.
        bound: What no choice without it gains more than, in whole units.
    """
    row_of = {bidder: row for bidder, row in full.row_of.items() if bidder != skip}
    # Nobody is better off without a bidder than the best choice with it is.
    most = value_of(market, full.row_of) + math.ceil(full.gap * market.unit)
    return Found(skip=skip, row_of=row_of, gap=gap_of(market, row_of, min(bound, most)))


def as_solution(market: MarketArrays, found: Found, *, placed: bool) -> Solution:
    """What was found, in the terms of the port."""
    logs = logs_of(market, found.row_of)
    if found.skip >= 0:
        del logs[found.skip]
    wins = _placed_wins(market, found) if placed else unplaced_wins(market, found.row_of)
    return solution_of(logs, wins, gap=found.gap, states=found.states, fallback=found.fallback)


def solution_of(
    logs: Sequence[float | None],
    wins: Mapping[str, Win],
    *,
    gap: float = 0.0,
    states: int = 0,
    fallback: bool = False,
    others_keep: bool = False,
) -> Solution:
    """A solution by the log of what each bidder has then, None where that is worth nothing."""
    positive = [log for log in logs if log is not None]
    return Solution(
        status=SolveStatus.OPTIMAL if gap == 0.0 else SolveStatus.TIME_LIMIT,
        gap=gap,
        log_objective=math.fsum(positive),
        positive=len(positive),
        wins=wins,
        states=states,
        fallback=fallback,
        others_keep=others_keep,
    )


def logs_of(market: MarketArrays, row_of: Mapping[int, int]) -> list[float | None]:
    """The log of what each bidder has who wins these rows; None where that is worth nothing."""
    logs, known = market.empty_logs.copy(), market.known_logs
    for bidder, row in row_of.items():
        log = known.get(row)
        if log is None:
            log = known[row] = math.log(market.bids[bidder].rows[market.row_index[row]].value)
        logs[bidder] = log
    return logs


def _placed_wins(market: MarketArrays, found: Found) -> dict[str, Win]:
    wins = {}
    for bidder, row in sorted(found.row_of.items()):
        bid, index = market.bids[bidder], market.row_index[row]
        pinned = pinned_gangs(bid.rows[index].pinned_parts, market.rack_of)
        wins[bid.app_id] = Win(row=index, gangs=(*sorted(found.gangs[bidder], key=by_nearness), *pinned))
    return wins


def unplaced_wins(market: MarketArrays, row_of: Mapping[int, int]) -> dict[str, Win]:
    """The wins of rows by bidder position, without places."""
    app_ids, unplaced = market.app_ids, market.unplaced
    return {app_ids[bidder]: unplaced[row_of[bidder]] for bidder in sorted(row_of)}
