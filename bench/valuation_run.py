"""Runs `bench valuation`: what a bid says a bundle is worth against the best packing of it, and how long bids take."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import median

from am.agent.bidding import make_bid, make_report
from am.agent.finish_time import phase_time_s
from am.agent.views import AppView
from bench.valuation_bound import bound_s
from bench.valuation_cases import BUNDLES_GPUS, Case, bundle_of, in_a_search, large_case, small_case
from bench.valuation_exact import exact_time_s
from rm_plugin.solvers.registry import solver
from themis.bids import Bid, FreeMachine, Market

NEAR = 0.01
"""The gap that counts as near."""

_SOLVE_S = 60.0
_ROUNDING = 1e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What to measure: how many small and large apps are packed, and how many bids of large apps are timed."""

    small: int = 200
    large: int = 12
    bids: int = 24
    seed: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class GapRow:
    """How far packings are from the best ones: T by the bid over the least T, less 1.

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


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeRow:
    """Milliseconds of CPU time, with apps of a hundred jobs on 168 free GPUs.

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


def run_plan(plan: Plan) -> Iterator[GapRow | TimeRow]:
    """The rows, as they are measured."""
    if plan.small:
        small = [small_gaps(plan.seed + number) for number in range(plan.small)]
        yield _gap_row("small", [gaps[0] for gaps in small])
        yield _gap_row("small-as-run", [gaps[1] for gaps in small])
    if plan.large:
        gaps = [_large_gaps(plan.seed + number) for number in range(plan.large)]
        for place, gpus in enumerate(BUNDLES_GPUS):
            yield _gap_row(f"large-{gpus}", [each[place][0] for each in gaps])
        for place, gpus in enumerate(BUNDLES_GPUS):
            yield _gap_row(f"alone-{gpus}", [each[place][1] for each in gaps])
    if plan.bids:
        cases = [in_a_search(large_case(plan.seed + number)) for number in range(plan.bids)]
        yield _time_row("bid", [_timed_ms(lambda case=case: _bid(case)) for case in cases])  # type: ignore[misc]
        yield _time_row("rho-first", [_timed_ms(lambda case=case: _ask(case)) for case in map(_fresh, cases)])  # type: ignore[misc]
        yield _time_row("rho-again", [_asked_again_ms(case) for case in cases])


# ---- gaps -----------------------------------------------------------------------------------------------------------


def small_gaps(seed: int) -> tuple[float, float]:
    """The gap to every division and every assignment, and to every division with jobs put on gangs as the app does."""
    case = small_case(seed)
    told_s = told_time_s(case, _bid(case), case.machines)
    as_run_s = exact_time_s(case.app, case.machines, phase_time_s)
    return _gap(told_s, exact_time_s(case.app, case.machines)), _gap(told_s, as_run_s)


def _large_gaps(seed: int) -> list[tuple[float, float]]:
    """For each bundle the gap by the rows of the bid on everything, and by a bid on the bundle alone."""
    case = large_case(seed)
    bid = _bid(case)
    gaps = []
    for gpus in BUNDLES_GPUS:
        machines = bundle_of(case, gpus, seed)
        told_s = told_time_s(case, bid, machines)
        alone_s = told_time_s(case, _bid(replace(case, machines=machines)), machines)
        least_s = bound_s(case.app, machines, case.around, min(told_s, alone_s))
        gaps.append((_gap(told_s, least_s), _gap(alone_s, least_s)))
    return gaps


def told_time_s(case: Case, bid: Bid, machines: Sequence[FreeMachine]) -> float:
    """T of the best row of a bid that fits into a bundle; infinite where none does.

    With nothing elapsed, and a bundle held to the end, V is t_ideal / T.
    """
    market = Market(machines=tuple(machines), bids=(replace(bid, empty_value=bid.empty_value or _NOTHING),))
    solution = solver("exact").solve(market, _SOLVE_S)
    win = solution.wins.get(bid.app_id)
    if win is None:
        return math.inf
    ideal_s = case.around.contention * case.app.work_total_gpu_s / _cluster_gpus(case)
    return ideal_s / bid.rows[win.row].value


_NOTHING = 1e-9
"""In place of a value of 0, of which a market would have no logarithm."""


def _cluster_gpus(case: Case) -> int:
    return min(case.around.cluster_gpus, case.app.demand_max_gpus)


def _gap(told_s: float, best_s: float) -> float:
    """T over the least T, less 1; what nobody can run is no gap."""
    if math.isinf(best_s) and math.isinf(told_s):
        return 0.0
    gap = told_s / best_s - 1.0
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


# ---- times ----------------------------------------------------------------------------------------------------------


def _bid(case: Case) -> Bid:
    return make_bid(case.app, case.offer, case.around)


def _ask(case: Case) -> None:
    make_report(case.app, case.around, 1)


def _fresh(case: Case) -> Case:
    """An equal case of which nothing is remembered: results are remembered by the identity of the jobs."""
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
