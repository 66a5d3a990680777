"""Time one market's auction with our solver and with HiGHS, and compare the results."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from random import Random
from typing import TypeVar

from rm_plugin.arbiter.auction import AuctionOutcome, first_alike, run_auction
from rm_plugin.solvers.highs import HighsSolver
from rm_plugin.solvers.port import Solution, SolveStatus
from rm_plugin.solvers.registry import solver
from themis.bids import Market
from themis.values import Value

AFFORDABLE_S = 300.0
"""An auction that takes HiGHS longer is sampled, or left out if even its first problem takes longer."""

SAMPLES = 2
"""Problems without one bidder that a sample times, in addition to the full market."""

_LIMIT_S = 600.0
_NO_LIMIT_S = 1e6

Answer = TypeVar("Answer")
Objectives = Mapping[str | None, float]
"""Log objective of each proven problem, by the omitted bidder; None is the full market."""


class Seconds(Value, frozen=True):
    """Wall-clock seconds, and CPU seconds of the process."""

    wall_s: float
    process_s: float


class OurAuction(Value, frozen=True, kw_only=True):
    """The auction by our solver. `states` and `fallbacks` are its own counts, if it has any."""

    seconds: Seconds
    objectives: Objectives
    optimal: bool
    states: int | None
    fallbacks: int | None


class HighsAuction(Value, frozen=True, kw_only=True):
    """The auction by HiGHS. `sampled` is the number of timed problems without one bidder; None if all were."""

    seconds: Seconds
    objectives: Objectives
    proven: bool
    sampled: int | None


def timed(work: Callable[[], Answer]) -> tuple[Seconds, Answer]:
    """Return the result of `work`, and its time."""
    wall_s, process_s = time.perf_counter(), time.process_time()
    answer = work()
    return Seconds(time.perf_counter() - wall_s, time.process_time() - process_s), answer


def time_ours(market: Market, solver_name: str) -> OurAuction:
    """Hold the whole auction, N + 1 problems, with a new solver of this name."""
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
    """Hold the auction with HiGHS, completely if that is affordable.

    The full market is solved first and alone. Its time gives an estimate for the auction. If that exceeds
    `AFFORDABLE_S` or `left_s`, the auction is sampled: the full market, plus the mean of `SAMPLES` problems times their
    number.

    Args:
        market: The market.
        rng: Chooses the sample.
        whole: Run the whole auction, whatever it takes.
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
    """The largest |a - b| / max(1, |a|, |b|) of two log objectives a and b, over the problems that both solvers proved.

    For logs near 0 this is the relative difference of the products. Returns None if they proved none in common.
    """
    both = ours.keys() & theirs.keys()
    pairs = [(ours[key], theirs[key]) for key in both]
    return max((abs(one - other) / max(1.0, abs(one), abs(other)) for one, other in pairs), default=None)


def _whole(market: Market, limit_s: float) -> HighsAuction:
    highs = HighsSolver()
    seconds, outcome = timed(lambda: run_auction(market, highs, limit_s))
    return HighsAuction(seconds=seconds, objectives=_objectives(outcome), proven=outcome.optimal, sampled=None)


def _problems(market: Market, full: Solution) -> list[str]:
    """The bidders whose problems an auction solves: the winners, and one of those with equal bids."""
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
