"""The result of an auction of a market file: wins, payments, GPUs kept and left, as JSON."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from rm_plugin.arbiter.auction import AuctionOutcome, run_auction
from rm_plugin.arbiter.rounding import keep_shares
from rm_plugin.arbiter.seeds import child_seed
from rm_plugin.solvers.port import WinnerDetermination
from rm_plugin.solvers.timed import TimedSolver
from themis.bids import Market, PlacedGang
from themis.choices import Rounding
from themis.cluster import Allocation
from themis.values import Value


class AuctionResult(Value, frozen=True, kw_only=True):
    """An auction after payment and rounding.

    `first_s` and `all_s` are the seconds of the market's problem and of all problems.

    `kept` holds every winner, including those that keep nothing.
    """

    market: Market
    outcome: AuctionOutcome
    kept: Mapping[str, Allocation]
    first_s: float
    all_s: float

    @property
    def leftover(self) -> Allocation:
        """Free GPUs that no app keeps."""
        return self.market.free - sum(self.kept.values(), Allocation())


def hold_auction(
    market: Market, solver: WinnerDetermination, *, seed: int, rounding: Rounding, time_limit_s: float
) -> AuctionResult:
    """Hold the auction of a market, as a round with this seed would.

    Args:
        market: Free machines and bids.
        solver: Determines the winners.
        seed: Seed of the rounding; the ResourceManager's rounds derive theirs in the same way.
        rounding: The rule that rounds kept shares to whole gangs.
        time_limit_s: Seconds for all problems together.
    """
    timed = TimedSolver(solver)
    outcome = run_auction(market, timed, time_limit_s)
    gangs = {app_id: win.gangs for app_id, win in outcome.wins.items()}
    # The crude S orders gangs as any S does, by level.
    kept = keep_shares(gangs, outcome.shares, {}, child_seed(seed, "payments"), rounding)
    return AuctionResult(
        market=market,
        outcome=outcome,
        kept={app_id: gpus_of(kept[app_id]) for app_id in gangs},
        first_s=timed.first_s,
        all_s=timed.first_s + timed.rest_s,
    )


def gpus_of(gangs: Iterable[PlacedGang]) -> Allocation:
    """The GPUs of gangs by machine."""
    return sum((gang.gpus for gang in gangs), Allocation())


def as_document(result: AuctionResult) -> dict[str, object]:
    """The result as `themis auction --json` prints it (docs/explanation/auction.md)."""
    outcome = result.outcome
    return {
        "status": outcome.status.value,
        "gap": outcome.worst_gap,
        "log_objective": outcome.log_objective,
        "proportional_fair": {app: gpus_of(win.gangs).by_machine() for app, win in outcome.wins.items()},
        "payments": dict(outcome.shares),
        "allocation": {app: kept.by_machine() for app, kept in result.kept.items()},
        "leftover": result.leftover.by_machine(),
        "solve_s": {"first": result.first_s, "all": result.all_s},
    }
