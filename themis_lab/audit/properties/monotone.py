"""Monotone: adding choices never lowers the objective, and changes that remove no choice leave it unchanged."""

from __future__ import annotations

import math
from collections.abc import Iterator

from msgspec.structs import replace

from rm_plugin.solvers.port import Solution, SolveStatus
from themis.bids import Market
from themis.choices import EmptyBundle
from themis_lab.audit.case import SAME, Case, same, value_won
from themis_lab.audit.variants import with_bid, with_free_gpu, with_machine
from themis_lab.simulator.agents import rows_times

_FACTOR = 2.0


def monotone(case: Case) -> list[str] | None:
    """Add a row, add a free GPU, raise a winning row, remove a loser. Each uses the case's random numbers."""
    if not case.solved or not case.bids:
        return None
    full = Solution(
        status=SolveStatus.OPTIMAL,
        gap=0.0,
        log_objective=case.outcome.log_objective,
        positive=case.outcome.problems[0].positive,
        wins=case.outcome.wins,
    )
    return [*_more_choices(case, full), *_raised(case, full), *_without_losers(case, full)]


def _more_choices(case: Case, full: Solution) -> Iterator[str]:
    rng = case.rng("monotone")
    rows = [row for bid in case.bids.values() for row in bid.rows]
    grown: dict[str, Market] = {}
    if rows:
        bid, row = rng.choice(list(case.bids.values())), rng.choice(rows)
        row = replace(row, value=row.value * rng.uniform(0.5, 2.0))
        grown[f"one more row for {bid.app_id}"] = with_bid(case.market, replace(bid, rows=(*bid.rows, row)))
    if case.market.machines:
        machine = rng.choice(case.market.machines)
        grown[f"one more free GPU on {machine.machine_id}"] = with_machine(case.market, with_free_gpu(machine))
    for what, market in grown.items():
        more = case.solve(market)
        if more.status is SolveStatus.OPTIMAL and _worse(more, full):
            yield f"{what} lowers the objective from {full.log_objective!r} to {more.log_objective!r}"


def _worse(one: Solution, other: Solution) -> bool:
    slack = SAME * max(1.0, abs(other.log_objective))
    if one.positive != other.positive:
        return one.positive < other.positive
    return one.log_objective < other.log_objective - slack


def _raised(case: Case, full: Solution) -> Iterator[str]:
    """A winner whose row gains value still wins it, and the objective rises by exactly that gain."""
    for app_id in sorted(full.wins)[:2]:
        bid, index = case.bids[app_id], full.wins[app_id].row
        raised = rows_times(bid, _FACTOR, index)
        more = case.solve(with_bid(case.market, raised))
        if more.status is not SolveStatus.OPTIMAL:
            continue
        if more.positive != full.positive or not same(more.log_objective, full.log_objective + math.log(_FACTOR)):
            yield f"raising the row that {app_id} wins moves the objective to {more.log_objective!r}"
        if not same(value_won(raised, more), _FACTOR * case.values[app_id]):
            yield f"raising the row that {app_id} wins loses it"


def _without_losers(case: Case, full: Solution) -> Iterator[str]:
    """Without a bidder that wins nothing, the objective of the others is unchanged (finite markets)."""
    if case.market.empty_bundle is not EmptyBundle.FINITE:
        return
    for app_id in [app_id for app_id in case.bids if app_id not in full.wins][:2]:
        rest = case.solve(case.market.without(app_id))
        expected = full.log_objective - math.log(case.bids[app_id].empty_value)
        if rest.status is SolveStatus.OPTIMAL and not same(rest.log_objective, expected):
            yield f"without {app_id}, which wins nothing, the objective is {rest.log_objective!r}, not {expected!r}"
