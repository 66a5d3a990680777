"""Pareto efficiency before payments: no feasible choice makes somebody better off and nobody worse."""

from __future__ import annotations

from themis_lab.audit.case import SAME, Case
from themis_lab.audit.enumeration import choices, is_tiny


def pareto(case: Case) -> list[str] | None:
    """By looking at every choice of a tiny market.

    On larger ones it follows from optimality: whatever is better for one and worse for none has a larger product.
    """
    if not is_tiny(case.market) or not case.solved:
        return None
    floor = {app_id: value * (1.0 - SAME) for app_id, value in case.values.items()}
    for chosen in choices(case.market, floor):
        better = [app_id for app_id, row in chosen.items() if row.value > case.values[app_id] * (1.0 + 10 * SAME)]
        if better:
            offered = {app_id: row.value for app_id, row in sorted(chosen.items())}
            return [f"a choice worth {offered} is better for {', '.join(sorted(better))} and worse for nobody"]
    return []
