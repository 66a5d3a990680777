"""Run `bench valuation`: the agent's value of bundles compared with the best packing, and the time of bids."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from statistics import median

from msgspec.structs import replace

from am.agent.bids.bidding import make_bid
from am.agent.bids.reports import make_report
from am.agent.model.finish_time import phase_time_s
from am.agent.model.views import AppView
from rm_plugin.solvers.registry import solver
from themis.bids import Bid, BidRow, FreeMachine, GangRequest, Market
from themis.values import Value
from themis_lab.bench.valuation_bound import bound_s, kinds_of, limits_of, times_of
from themis_lab.bench.valuation_cases import BUNDLES_GPUS, Case, bundle_of, in_a_search, large_case, small_case
from themis_lab.bench.valuation_exact import exact_time_s
from themis_lab.bench.valuation_reference import answer

NEAR = 0.01
"""A gap up to this is near."""

_SOLVE_S = 60.0
_ROUNDING = 1e-6


class ValuationBenchPlan(Value, frozen=True, kw_only=True):
    """The numbers of small and large apps to pack, and of bids of large apps to time.

    `reference_s` is the CPU time of the reference, in seconds, for each bundle that the bound leaves open.
    """

    small: int = 200
    large: int = 12
    bids: int = 24
    seed: int = 1
    reference_s: float = 0.0


class GapRow(Value, frozen=True, kw_only=True):
    """Gaps of packings to the best ones: T by the bid over the smallest T, minus 1.

    Attributes:
        part: `small`, against all that can be done; `small-as-run`, against every division with the jobs put on its
            gangs as apps put them; `large-GPUS`, against a proven bound, so at most so far; `alone-GPUS`, the same, but
            by a bid on the bundle alone.
        bundles: Bundles packed.
        median_gap, worst_gap: Of the gaps.
        near_share: Share of the bundles with a gap of no more than `NEAR`.
        exact_share: Share of those with none.
    """

    part: str
    bundles: int
    median_gap: float
    worst_gap: float
    near_share: float
    exact_share: float


class ReferenceRow(Value, frozen=True, kw_only=True):
    """How many packings are within `NEAR` of the best ones, if the reference decides what the bound leaves open.

    Attributes:
        part: `alone-GPUS`, the bundles of that gap.
        near: Bundles for which it is proven that they are within it, by the bound or by the reference.
        far: Those for which a packing was found that ends so much earlier that they are not.
        undecided: The others.
        shown_gap: The widest gap to a packing that was found; 0 without one. The best one may be better still.
    """

    part: str
    near: int
    far: int
    undecided: int
    shown_gap: float


class LargeGap(Value, frozen=True):
    """Gaps of one large bundle to the bound, for the rows of the bid on everything and for a bid on the bundle alone.

    Attributes:
        is_near: Whether the latter is within `NEAR` of the least T; None if that is unknown.
        shown: The gap to a packing that shows that it is not; 0 without one.
    """

    of_rows: float
    alone: float
    is_near: bool | None
    shown: float = 0.0


class TimeRow(Value, frozen=True, kw_only=True):
    """Milliseconds of CPU time, for apps of a hundred jobs on 168 free GPUs.

    Attributes:
        part: `bid`: a whole bid; `rho-first` and `rho-again`: the answer to a round's question, of an app that has
            never been asked, and of one in which nothing changed since.
        asked: How often it was timed.
        p50_ms, p95_ms: Median and 95th percentile by nearest rank.
    """

    part: str
    asked: int
    p50_ms: float
    p95_ms: float


Row = GapRow | ReferenceRow | TimeRow


def run_plan(plan: ValuationBenchPlan) -> Iterator[Row]:
    """The rows, as they are measured."""
    if plan.small:
        small = [small_gaps(plan.seed + number) for number in range(plan.small)]
        yield _gap_row("small", [gaps[0] for gaps in small])
        yield _gap_row("small-as-run", [gaps[1] for gaps in small])
    if plan.large:
        yield from _large_rows(plan)
    if plan.bids:
        cases = [in_a_search(large_case(plan.seed + number)) for number in range(plan.bids)]
        yield _time_row("bid", [_timed_ms(lambda case=case: _bid(case)) for case in cases])  # type: ignore[misc]
        yield _time_row("rho-first", [_timed_ms(lambda case=case: _ask(case)) for case in map(_fresh, cases)])  # type: ignore[misc]
        yield _time_row("rho-again", [_asked_again_ms(case) for case in cases])


def _large_rows(plan: ValuationBenchPlan) -> Iterator[GapRow | ReferenceRow]:
    gaps = [_large_gaps(plan.seed + number, plan.reference_s) for number in range(plan.large)]
    by_gpus = dict(zip(BUNDLES_GPUS, zip(*gaps, strict=True), strict=True))
    for gpus, its in by_gpus.items():
        yield _gap_row(f"large-{gpus}", [gap.of_rows for gap in its])
    for gpus, its in by_gpus.items():
        yield _gap_row(f"alone-{gpus}", [gap.alone for gap in its])
    if plan.reference_s:
        for gpus, its in by_gpus.items():
            yield _reference_row(f"alone-{gpus}", its)


# ---- gaps -----------------------------------------------------------------------------------------------------------


def small_gaps(seed: int) -> tuple[float, float]:
    """The gap to every division and assignment, and to every division with the app's own assignment of jobs."""
    case = small_case(seed)
    by_bid_s = bid_time_s(case, _bid(case), case.machines)
    as_run_s = exact_time_s(case.app, case.machines, phase_time_s)
    return _gap(by_bid_s, exact_time_s(case.app, case.machines)), _gap(by_bid_s, as_run_s)


def _large_gaps(seed: int, reference_s: float) -> list[LargeGap]:
    """The gaps of each bundle, and the reference's result within `reference_s` seconds."""
    case = large_case(seed)
    bid = _bid(case)
    gaps = []
    for gpus in BUNDLES_GPUS:
        machines = bundle_of(case, gpus, seed)
        by_bid_s = bid_time_s(case, bid, machines)
        alone_s = bid_time_s(case, _bid(replace(case, machines=machines)), machines)
        least_s = bound_s(case.app, machines, min(by_bid_s, alone_s))
        gap = LargeGap(_gap(by_bid_s, least_s), _gap(alone_s, least_s), is_near=True)
        if gap.alone > NEAR:
            is_near, shown = settled(case, machines, alone_s, reference_s) if reference_s else (None, 0.0)
            gap = replace(gap, is_near=is_near, shown=shown)
        gaps.append(gap)
    return gaps


def settled(
    case: Case, machines: Sequence[FreeMachine], by_bid_s: float, most_cpu_s: float
) -> tuple[bool | None, float]:
    """Whether a bid's finish time is within `NEAR` of the smallest T. The first value is None if undecided.

    The second value is the gap to a packing that proves the contrary; 0 without one.
    """
    capacity, kinds = kinds_of(case.app, machines)
    times_s = times_of(case.app, kinds)
    found = answer(times_s, limits_of(kinds, machines, capacity), by_bid_s / (1.0 + NEAR), most_cpu_s)
    if found.is_too_soon:
        return True, 0.0
    counts = Counter(kinds[kind] for kind, _ in found.held or ())
    gangs = [GangRequest(kind.at.gpus, kind.within, count, kind.unit_gpus) for kind, count in counts.items()]
    if not gangs or not _fits(machines, tuple(sorted(gangs))):
        return None, 0.0
    return False, _gap(by_bid_s, found.end_s(times_s))


def _fits(machines: Sequence[FreeMachine], gangs: tuple[GangRequest, ...]) -> bool:
    """Whether these gangs fit together, by the auction's rules."""
    bid = Bid(app_id="app", round_id=1, empty_value=_NOTHING, rows=(BidRow(value=1.0, gangs=gangs),))
    market = Market(machines=tuple(machines), bids=(bid,))
    return "app" in solver("exact").solve(market, _SOLVE_S).wins


def bid_time_s(case: Case, bid: Bid, machines: Sequence[FreeMachine]) -> float:
    """T of the best row of a bid that fits into a bundle. Infinite if none fits.

    Without elapsed time, and with a bundle held to the end, V is t_ideal / T.
    """
    market = Market(machines=tuple(machines), bids=(replace(bid, empty_value=bid.empty_value or _NOTHING),))
    solution = solver("exact").solve(market, _SOLVE_S)
    win = solution.wins.get(bid.app_id)
    if win is None:
        return math.inf
    usable_gpus = min(case.cluster_view.cluster_gpus, case.app.demand_max_gpus)
    ideal_s = case.app.contention * case.app.work_total_gpu_s / usable_gpus
    return ideal_s / bid.rows[win.row].value


_NOTHING = 1e-9
"""Used instead of a value of 0, whose logarithm a market could not use."""


def _gap(by_bid_s: float, best_s: float) -> float:
    """T over the smallest T, minus 1. A bundle on which nothing can run has no gap."""
    if math.isinf(best_s) and math.isinf(by_bid_s):
        return 0.0
    gap = by_bid_s / best_s - 1.0
    return 0.0 if abs(gap) < _ROUNDING else gap


def _gap_row(part: str, gaps: Sequence[float]) -> GapRow:
    return GapRow(
        part=part,
        bundles=len(gaps),
        median_gap=median(gaps),
        worst_gap=max(gaps),
        near_share=sum(gap <= NEAR for gap in gaps) / len(gaps),
        exact_share=sum(gap == 0.0 for gap in gaps) / len(gaps),
    )


def _reference_row(part: str, gaps: Sequence[LargeGap]) -> ReferenceRow:
    verdicts = Counter(gap.is_near for gap in gaps)
    shown = max(gap.shown for gap in gaps)
    return ReferenceRow(part=part, near=verdicts[True], far=verdicts[False], undecided=verdicts[None], shown_gap=shown)


# ---- times ----------------------------------------------------------------------------------------------------------


def _bid(case: Case) -> Bid:
    return make_bid(case.app, case.offer, case.cluster_view)


def _ask(case: Case) -> None:
    make_report(case.app, case.cluster_view, 1)


def _fresh(case: Case) -> Case:
    """An equal case with new objects: results are cached by the identity of the jobs."""
    app: AppView = replace(case.app, jobs=tuple(replace(job) for job in case.app.jobs))
    return replace(case, app=app)


def _asked_again_ms(case: Case) -> float:
    _ask(case)
    return _timed_ms(lambda: _ask(case))


def _timed_ms(work: Callable[[], object]) -> float:
    begun_s = time.process_time()
    work()
    return 1e3 * (time.process_time() - begun_s)


def _time_row(part: str, times_ms: Sequence[float]) -> TimeRow:
    ordered = sorted(times_ms)
    rank = math.ceil(0.95 * len(ordered)) - 1
    return TimeRow(part=part, asked=len(ordered), p50_ms=median(ordered), p95_ms=ordered[rank])
