"""Payments: every kept share matches its definition and lies in [0, 1].

A bidder that wins nothing or bids alone pays 0.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from rm_plugin.arbiter.auction import Problem
from themis_lab.audit.case import SAME, Case


def payments(case: Case) -> list[str]:
    """Check ranges for any outcome.

    If all problems were solved, check the definition and that equal bidders get equal shares.
    """
    return [*_out_of_range(case), *(_against_definition(case) if case.solved else ()), *_unlike_twins(case)]


def _out_of_range(case: Case) -> Iterator[str]:
    shares = case.outcome.shares
    if set(shares) != set(case.bids):
        yield f"shares are of {sorted(shares)}, bidders are {sorted(case.bids)}"
    for app_id, share in shares.items():
        # Negated, so that NaN fails too.
        if not 0.0 <= share <= 1.0:
            yield f"c of {app_id} is {share!r}"
        if app_id not in case.outcome.wins and share != 1.0:
            yield f"{app_id} wins nothing and keeps only {share!r}"
    if len(case.bids) == 1 and set(shares.values()) != {1.0}:
        yield f"a single bidder keeps {shares}"


def _against_definition(case: Case) -> Iterator[str]:
    """Compare c_i with the objective without i.

    If i costs others their positive value, the products cannot be compared.
    """
    problems: Mapping[str | None, Problem] = {problem.without: problem for problem in case.outcome.problems}
    for app_id in case.outcome.wins:
        if app_id not in problems:
            yield f"the problem without the winner {app_id} was not solved"
            continue
        others = [math.log(value) for other, value in case.values.items() if other != app_id and value > 0]
        if len(others) != problems[app_id].positive:
            continue
        share = math.exp(min(0.0, math.fsum(others) - problems[app_id].log_objective))
        stated = case.outcome.shares.get(app_id, math.nan)
        if not abs(share - stated) <= SAME:
            yield f"c of {app_id} is {stated!r}, by its definition {share!r}"


def _unlike_twins(case: Case) -> Iterator[str]:
    first: dict[tuple[object, ...], str] = {}
    for app_id, bid in case.bids.items():
        win = case.outcome.wins.get(app_id)
        twin = first.setdefault((bid.empty_value, bid.rows, None if win is None else win.row), app_id)
        one, other = case.outcome.shares.get(twin, math.nan), case.outcome.shares.get(app_id, math.nan)
        if case.solved and not abs(one - other) <= SAME:
            yield f"{twin} and {app_id} bid and win the same and keep {one!r} and {other!r}"
