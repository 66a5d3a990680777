"""Pareto efficiency before payments: no feasible choice makes one bidder better off and none worse off."""

from __future__ import annotations

from themis_lab.audit.case import SAME, Case
from themis_lab.audit.enumeration import choices, is_tiny


def pareto(case: Case) -> list[str] | None:
    """Check every choice of a tiny market.

    On larger markets it follows from optimality: a choice that is better for one bidder and worse for none has a larger
    product.
    """
    if not is_tiny(case.market) or not case.solved:
        return None
    floor = {app_id: value * (1.0 - SAME) for app_id, value in case.values.items()}
    for chosen in choices(case.market, floor):
        better = [app_id for app_id, row in chosen.items() if row.value > case.values[app_id] * (1.0 + 10 * SAME)]
        if better:
            offered = {app_id: row.value for app_id, row in sorted(chosen.items())}
            return [f"a choice worth {offered} is better for {', '.join(sorted(better))} and worse for no app"]
    return []
