"""Gain from misreporting: for each kind of lie a bidder's best, by the value of the win and by that after rounding."""

from __future__ import annotations

from themis_lab.audit.case import Case
from themis_lab.audit.misreports import misreports
from themis_lab.audit.values import Sample

_MEASURED = ("win", "rounded")


def misreport(case: Case) -> list[Sample]:
    """`misreport_KIND_UTILITY`: the relative gain in utility from the best lie of a kind; 0.1 is a tenth."""
    best: dict[tuple[str, str, str], tuple[float, str]] = {}
    for found in misreports(case):
        for utility in _MEASURED:
            key = (found.app_id, found.lie.kind, utility)
            gain = found.gains[utility]
            if gain > best.get(key, (-1.0, ""))[0]:
                best[key] = (gain, f"{found.app_id}: {found.lie.what}")
    return [
        Sample(measure=f"misreport_{kind}_{utility}", value=max(0.0, gain), what=what)
        for (_, kind, utility), (gain, what) in best.items()
    ]
