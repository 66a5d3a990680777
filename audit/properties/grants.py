"""Grants: what payments leave is part of what was won, whole gangs, and leftovers hand out nothing twice."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator

from audit.case import Case
from audit.feasibility import overused
from audit.round_cases import snapshot_of
from audit.valuation import expected_value
from rm_plugin.arbiter.round_values import Decision, RoundSnapshot
from rm_plugin.policies.demands import usable_left
from themis.bids import PlacedGang
from themis.choices import Rounding
from themis.cluster import Allocation

_NOISE = 1e-6


def grants(case: Case) -> list[str]:
    """The policy's whole decision after the auction, under every rounding."""
    findings = list(_unexpected(case))
    for rounding in Rounding:
        snapshot = snapshot_of(case, rounding)
        decision = case.mechanism.policy.decide(snapshot)
        if not isinstance(decision, Decision):
            findings.append(f"{rounding}: the policy asks again after the auction")
            continue
        findings += [f"{rounding}: {problem}" for problem in _problems(case, snapshot, decision)]
    return findings


def _unexpected(case: Case) -> Iterator[str]:
    """Rounding must neither favour nor starve: over its draw a winner keeps c k of k gangs."""
    for app_id, win in case.outcome.wins.items():
        wanted = case.outcome.shares[app_id] * len(win.gangs)
        kept = expected_value(win.gangs, case.outcome.shares[app_id], lambda gangs: float(len(gangs)))
        if not abs(kept - wanted) <= _NOISE:
            yield f"{app_id} keeps {kept!r} gangs in expectation where c k is {wanted!r}"


def _problems(case: Case, snapshot: RoundSnapshot, decision: Decision) -> Iterator[str]:
    for app_id, kept in decision.auction.items():
        win = case.outcome.wins.get(app_id)
        yield from _not_part_of(app_id, kept, () if win is None else win.gangs, snapshot.settings.rounding)
        if win is not None and snapshot.settings.rounding is Rounding.PROBABILISTIC:
            yield from _not_the_share(app_id, len(kept), case.outcome.shares[app_id] * len(win.gangs))
    for app_id, gangs in decision.leftovers.items():
        yield from _beyond_demand(app_id, gangs, snapshot)
    twice = overused(snapshot.machines, (gang for gangs in decision.grants().values() for gang in gangs))
    yield from twice
    if not twice and (idle := usable_left(snapshot.machines, decision)):
        yield f"{idle} free GPUs stay idle though a job could use them"


def _not_part_of(
    app_id: str, kept: tuple[PlacedGang, ...], won: tuple[PlacedGang, ...], rounding: Rounding
) -> Iterator[str]:
    if rounding is Rounding.BY_GPU:
        part = sum((gang.gpus for gang in kept), Allocation())
        if not part.within(sum((gang.gpus for gang in won), Allocation())):
            yield f"{app_id} keeps GPUs that it did not win"
    elif Counter(kept) - Counter(won):
        yield f"{app_id} keeps gangs that it did not win, or parts of gangs"


def _not_the_share(app_id: str, kept: int, expected: float) -> Iterator[str]:
    if not math.floor(expected - 1e-9) <= kept <= math.ceil(expected + 1e-9):
        yield f"{app_id} keeps {kept} gangs where c k is {expected!r}"


def _beyond_demand(app_id: str, gangs: tuple[PlacedGang, ...], snapshot: RoundSnapshot) -> Iterator[str]:
    demands = snapshot.reports[app_id].demands
    if len(gangs) > len(demands):
        yield f"{app_id} has {len(demands)} jobs and gets {len(gangs)} gangs of the leftovers"
    most, unit = max(demand.max_gpus for demand in demands), demands[0].unit_gpus
    for gang in gangs:
        if gang.gpus.gpus > most or any(count % unit for _, count in gang.gpus):
            yield f"{app_id} gets a gang on {gang.gpus.by_machine()}, at most {most} GPUs in units of {unit} are of use"
