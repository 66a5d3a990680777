"""Truthful: no lie pays where an app's whole value scales with its kept share, in any finite market."""

from __future__ import annotations

from audit.case import Case
from audit.misreports import misreports
from themis.choices import EmptyBundle

_SLACK = 1e-7
"""Gains below this are rounding: products of logs and the solvers' tolerances."""


def truthful(case: Case) -> list[str] | None:
    """The theorem behind hidden payments, `scaled` of `audit.misreports`; other ways of counting are only measured."""
    if not case.solved or case.market.empty_bundle is not EmptyBundle.FINITE:
        return None
    return [
        f"{found.app_id} gains {found.gains['scaled']:.3g} of what it has: {found.lie.what}"
        for found in misreports(case)
        if found.gains["scaled"] > _SLACK
    ][:1]
