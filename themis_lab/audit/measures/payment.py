"""Hidden payments: the share 1 - c_i of its win that a winner gives up."""

from __future__ import annotations

from themis_lab.audit.case import Case
from themis_lab.audit.values import Sample


def payment(case: Case) -> list[Sample]:
    """Return a sample per winner. For divisible goods and homogeneous valuations it is at most 1 - 1/e = 0.632."""
    if not case.solved:
        return []
    shares = case.outcome.shares
    return [
        Sample(measure="payment", value=1.0 - shares[app_id], what=f"{app_id} keeps {shares[app_id]:.4f}")
        for app_id in case.outcome.wins
    ]
