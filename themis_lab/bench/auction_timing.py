"""One market, auctioned by our solver and by HiGHS: seconds of the whole auction, and whether both found the same."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import TypeVar

from rm_plugin.arbiter.auction import AuctionOutcome, first_alike, run_auction
from rm_plugin.solvers.highs import HighsSolver
from rm_plugin.solvers.port import Solution, SolveStatus
from rm_plugin.solvers.registry import solver
from themis.bids import Market

AFFORDABLE_S = 300.0
"""An auction that HiGHS would take longer for is sampled, or left out where even its first problem does."""

SAMPLES = 2
"""Problems without one bidder that a sample times, beside the full market."""

_LIMIT_S = 600.0
_NO_LIMIT_S = 1e6

Answer = TypeVar("Answer")
Objectives = Mapping[str | None, float]
"""Log objective of each proven problem, by the bidder left out; None is the full market."""


@dataclass(frozen=True, slots=True)
class Seconds:
    """Wall-clock seconds, and seconds that the process computed."""

    wall_s: float
    process_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class OurAuction:
    """The auction by our solver; `states` and `fallbacks` are what it counted, if it does."""

    seconds: Seconds
    objectives: Objectives
    optimal: bool
    states: int | None
    fallbacks: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class HighsAuction:
    """The auction by HiGHS. `sampled` counts the problems without one bidder that were timed, None for all of them."""

    seconds: Seconds
    objectives: Objectives
    proven: bool
    sampled: int | None


def timed(work: Callable[[], Answer]) -> tuple[Seconds, Answer]:
    """What some work answers, and how long it took."""
    wall_s, process_s = time.perf_counter(), time.process_time()
    answer = work()
    return Seconds(time.perf_counter() - wall_s, time.process_time() - process_s), answer


def time_ours(market: Market, solver_name: str) -> OurAuction:
    """The whole auction, N + 1 problems, by a fresh solver of that name."""
    own = solver(solver_name)
    seconds, outcome = timed(lambda: run_auction(market, own, _LIMIT_S))
    return OurAuction(
        seconds=seconds,
        objectives=_objectives(outcome),
        optimal=outcome.optimal,
        states=outcome.states,
        fallbacks=outcome.fallbacks,
    )


def time_highs(market: Market, rng: Random, *, whole: bool, left_s: float) -> HighsAuction | None:
    """The auction by HiGHS, whole where that is affordable.

    The full market is solved first, by itself. From its time the auction's is estimated; one that would take over
    `AFFORDABLE_S` or `left_s` is sampled: full market plus the mean of `SAMPLES` problems times their number.

    Args:
        market: The market.
        rng: Draws the sample.
        whole: Run the whole auction whatever it takes.
        left_s: Seconds that the auction may take.

    Returns:
        None when not even the full market is solved in that time.
    """
    if whole:
        return _whole(market, _NO_LIMIT_S)
    limit_s = min(AFFORDABLE_S, left_s)
    if limit_s <= 0.0:
        return None
    seconds, full = timed(lambda: HighsSolver().solve(market, limit_s))
    if full.status is not SolveStatus.OPTIMAL:
        return None
    without = _problems(market, full)
    if seconds.wall_s * (2 + len(without)) <= limit_s:
        return _whole(market, _LIMIT_S)
    return _sampled(market, without, rng, seconds, full)


def relative_difference(ours: Objectives, theirs: Objectives) -> float | None:
    """The largest |a - b| / max(1, |a|, |b|) of two log objectives a and b, over the problems that both proved.

    Where logs are near 0 that is the relative difference of the products themselves. None where both proved none.
    """
    both = ours.keys() & theirs.keys()
    pairs = [(ours[key], theirs[key]) for key in both]
    return max((abs(one - other) / max(1.0, abs(one), abs(other)) for one, other in pairs), default=None)


def _whole(market: Market, limit_s: float) -> HighsAuction:
    highs = HighsSolver()
    seconds, outcome = timed(lambda: run_auction(market, highs, limit_s))
    return HighsAuction(seconds=seconds, objectives=_objectives(outcome), proven=outcome.optimal, sampled=None)


def _problems(market: Market, full: Solution) -> list[str]:
    """The bidders whose problems an auction solves: the winners, of those with the same bid one."""
    return sorted(set(first_alike(market.bids, full.wins).values()))


def _sampled(market: Market, without: Sequence[str], rng: Random, full_s: Seconds, full: Solution) -> HighsAuction:
    highs = HighsSolver()
    chosen = rng.sample(without, min(SAMPLES, len(without)))
    runs = {app_id: timed(partial(highs.solve, market.without(app_id), AFFORDABLE_S)) for app_id in chosen}
    times = [seconds for seconds, _ in runs.values()]
    scale = len(without) / max(1, len(chosen))
    objectives: dict[str | None, float] = {None: full.log_objective}
    objectives |= {app: found.log_objective for app, (_, found) in runs.items() if found.status is SolveStatus.OPTIMAL}
    return HighsAuction(
        seconds=Seconds(
            full_s.wall_s + scale * sum(each.wall_s for each in times),
            full_s.process_s + scale * sum(each.process_s for each in times),
        ),
        objectives=objectives,
        proven=len(objectives) == 1 + len(chosen),
        sampled=len(chosen),
    )


def _objectives(outcome: AuctionOutcome) -> dict[str | None, float]:
    proven = (problem for problem in outcome.problems if problem.status is SolveStatus.OPTIMAL)
    return {problem.without: problem.log_objective for problem in proven}
