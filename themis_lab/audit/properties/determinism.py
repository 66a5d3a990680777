"""Determinism: two equal calls give the same answer, whatever the solver did before."""

from __future__ import annotations

from themis_lab.audit.case import Case


def determinism(case: Case) -> list[str] | None:
    """Compare with a second call of a new solver, and with a solver that has just solved a part of the market."""
    if not case.solved:
        return None
    findings = []
    if case.auction(case.market) != case.outcome:
        findings.append("a second call gives another outcome")
    used = case.mechanism.make_solver()
    limit_s = case.mechanism.time_limit_s
    for app_id in list(case.bids)[:1]:
        case.mechanism.auction(case.market.without(app_id), used, limit_s)
    if case.mechanism.auction(case.market, used, limit_s) != case.outcome:
        findings.append("a solver that has solved another market before gives another outcome")
    return findings
