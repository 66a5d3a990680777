"""Run a plan variant by variant and market by market within its budget, and report progress."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from random import Random

from rm_plugin.arbiter.seeds import child_seed
from themis.bids import Bid, BidRow, FreeMachine, GangRequest, Market
from themis.cluster import Level
from themis.values import Value
from themis_lab.bench.auction_markets import explicit_market, round_scene
from themis_lab.bench.auction_plan import AuctionBenchPlan, HighsUse, RowKind, Variant
from themis_lab.bench.auction_rows import MarketFigures, ResultRow, sum_up
from themis_lab.bench.auction_timing import HighsAuction, OurAuction, Seconds, time_highs, time_ours, timed

_HIGHS_PART = 0.7
"""Share of a variant's time that HiGHS may use."""


class Progress(Value, frozen=True, kw_only=True):
    """A market was measured, number `done` of its variant. `highs_s` is None if HiGHS was left out."""

    variant: Variant
    done: int
    markets: int
    ours_s: float
    highs_s: float | None


def run_plan(plan: AuctionBenchPlan) -> Iterator[Progress | ResultRow]:
    """Measure every variant in order. A variant's row follows its markets.

    The remaining budget is divided evenly among the remaining variants. A market starts only within its variant's
    share. A variant whose time is up before its first market gets a row without results.
    """
    end_s = math.inf if plan.budget_s is None else time.perf_counter() + plan.budget_s
    _warm_up(plan)
    for place, variant in enumerate(plan.variants):
        part_s = (end_s - time.perf_counter()) / (len(plan.variants) - place)
        figures: list[MarketFigures] = []
        for figure in _run_variant(plan, variant, max(0.0, part_s)):
            figures.append(figure)
            yield _progress(plan, variant, figures)
        yield sum_up(variant, figures)


def _progress(plan: AuctionBenchPlan, variant: Variant, figures: Sequence[MarketFigures]) -> Progress:
    last = figures[-1]
    return Progress(
        variant=variant,
        done=len(figures),
        markets=plan.markets,
        ours_s=last.ours.seconds.wall_s,
        highs_s=None if last.highs is None else last.highs.seconds.wall_s,
    )


def _run_variant(plan: AuctionBenchPlan, variant: Variant, part_s: float) -> Iterator[MarketFigures]:
    begun_s = time.perf_counter()
    highs_left_s = 0.0 if plan.highs is HighsUse.NEVER else _HIGHS_PART * part_s
    for number in range(plan.markets):
        if time.perf_counter() - begun_s >= part_s:
            return
        market, bids = _draw(plan, variant, number)
        auctions_begun_s = time.perf_counter()
        try:
            ours, highs = _compare(plan, market, number, highs_left_s / (plan.markets - number))
        except Exception as error:
            error.add_note(f"in {variant}, seed {plan.seed + number}")
            raise
        highs_left_s -= time.perf_counter() - auctions_begun_s - ours.seconds.wall_s
        if highs is None:
            # If one market is too large for HiGHS, similar ones are too; trying them would only cost time.
            highs_left_s = 0.0
        yield MarketFigures(
            rows=sum(len(bid.rows) for bid in market.bids),
            rows_dropped=sum(bid.rows_dropped for bid in market.bids),
            free_gpus=market.free.gpus,
            asked_gpus=sum(max((row.gpus for row in bid.rows), default=0) for bid in market.bids),
            bids=bids,
            ours=ours,
            highs=highs,
        )


def _draw(plan: AuctionBenchPlan, variant: Variant, number: int) -> tuple[Market, tuple[Seconds, ...]]:
    """Return a random market of the variant, and the time of each agent's bid."""
    size, seed = variant.size, plan.seed + number
    if variant.kind is RowKind.EXPLICIT:
        # Its tables are not made by agents, so their times are meaningless.
        return explicit_market(size, seed, gangs=variant.gangs, cluster=variant.cluster), ()
    scene = round_scene(size, seed, gangs=variant.gangs, cluster=variant.cluster, elastic_share=plan.elastic_share)
    bids = [timed(bidder.bid) for bidder in scene.bidders]
    market = Market(machines=scene.machines, bids=tuple(bid for _, bid in bids))
    return market, tuple(seconds for seconds, _ in bids)


def _compare(
    plan: AuctionBenchPlan, market: Market, number: int, left_s: float
) -> tuple[OurAuction, HighsAuction | None]:
    """Hold both auctions of one market, in alternating order."""
    rng = Random(child_seed(plan.seed, "sample", str(number)))
    whole = plan.highs is HighsUse.ALWAYS
    if number % 2:
        highs = time_highs(market, rng, whole=whole, left_s=left_s)
        return time_ours(market, plan.solver), highs
    ours = time_ours(market, plan.solver)
    return ours, time_highs(market, rng, whole=whole, left_s=left_s)


def _warm_up(plan: AuctionBenchPlan) -> None:
    """Run both solvers once on a tiny market, so that loading them does not count."""
    gang = BidRow(value=2.0, gangs=(GangRequest(1, Level.CLUSTER),))
    bid = Bid(app_id="app", round_id=0, empty_value=1.0, rows=(gang,))
    machine = FreeMachine(machine_id="m", rack_id="r", free_slots=(1,))
    market = Market(machines=(machine,), bids=(bid,))
    _compare(plan, market, 0, left_s=1.0)
