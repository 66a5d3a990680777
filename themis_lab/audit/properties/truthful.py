"""Truthful: if an app's whole value scales with its kept share, no lie pays in any finite market."""

from __future__ import annotations

from themis.choices import EmptyBundle
from themis_lab.audit.case import Case
from themis_lab.audit.misreports import misreports

_SLACK = 1e-7
"""Smaller gains are rounding errors of logarithms and of the solvers' tolerances."""


def truthful(case: Case) -> list[str] | None:
    """Check the theorem behind hidden payments.

    It holds for utilities of the kind `scaled` (`themis_lab.audit.misreports`); the other kinds are only measured.
    """
    if not case.solved or case.market.empty_bundle is not EmptyBundle.FINITE:
        return None
    return [
        f"{found.app_id} gains {found.gains['scaled']:.3g} of what it has: {found.lie.what}"
        for found in misreports(case)
        if found.gains["scaled"] > _SLACK
    ][:1]
