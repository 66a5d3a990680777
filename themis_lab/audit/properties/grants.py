"""Grants: after payments a winner keeps whole gangs of its win, and leftovers grant no GPU twice."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator

from msgspec.structs import replace

from rm_plugin.arbiter.round_values import Decision, RoundSnapshot
from rm_plugin.arbiter.rounding import keep_shares
from rm_plugin.policies.demands import usable_left
from themis.bids import GangDemand, PlacedGang
from themis.choices import Rounding
from themis_lab.audit.case import Case
from themis_lab.audit.feasibility import overused
from themis_lab.audit.matching import all_served
from themis_lab.audit.round_cases import snapshot_of
from themis_lab.audit.rounding_odds import expected, kept_odds

_NOISE = 1e-6

_DRAWS = 128
_MIN_ODDS = 0.2
"""Draws with less even odds are not checked. Of honest draws with at least these odds, all 128 agree once in 10^12."""
_TWIN = "twin"
_CUTTING = (Rounding.BY_GPU, Rounding.CAPPED)
"""The roundings that may cut one gang."""


def grants(case: Case) -> list[str]:
    """Check the policy's whole decision after the auction, under every rounding."""
    findings = []
    for rounding in Rounding:
        snapshot = snapshot_of(case, rounding)
        problems = [*_unexpected(case, snapshot), *_drawn_alike(case, snapshot)]
        decision = case.mechanism.policy.decide(snapshot)
        if isinstance(decision, Decision):
            problems += _problems(case, snapshot, decision)
        else:
            problems.append("the policy asks again after the auction")
        findings += [f"{rounding}: {problem}" for problem in problems]
    return findings


def _unexpected(case: Case, snapshot: RoundSnapshot) -> Iterator[str]:
    """In expectation over the rounding, a winner keeps c k of k gangs or k GPUs; under `capped` at least as many.

    It never keeps a gang at a looser level than one that it gives up.
    """
    rounding = snapshot.settings.rounding
    unit, size = ("GPUs", _gpus) if rounding in _CUTTING else ("gangs", len)
    for app_id, win in case.outcome.wins.items():
        share = case.outcome.shares[app_id]
        wanted = share * size(win.gangs)
        odds = kept_odds(win.gangs, share, rounding, snapshot.reports[app_id].demands)
        kept = expected(odds, size)
        too_much = rounding is not Rounding.CAPPED and kept > wanted + _NOISE
        if rounding is not Rounding.NEAREST and (too_much or not kept >= wanted - _NOISE):
            yield f"{app_id} keeps {kept!r} {unit} in expectation where c k is {wanted!r}"
        if any(_farther_kept(outcome, win.gangs) for outcome in odds):
            yield f"{app_id} may keep a gang that lies farther apart than one that it gives up"


def _farther_kept(kept: tuple[PlacedGang, ...], won: tuple[PlacedGang, ...]) -> bool:
    """Whether a gang kept, whole or in part, spans a looser level than one given up, whole or in part."""
    given_up = Counter(won) - Counter(kept)
    return bool(kept and given_up) and max(gang.level for gang in kept) > min(gang.level for gang in given_up)


def _drawn_alike(case: Case, snapshot: RoundSnapshot) -> Iterator[str]:
    """Every winner's rounding is independent of other winners and of other rounds.

    So an app and its twin keep equally many gangs only sometimes.
    """
    if snapshot.settings.rounding is not Rounding.PROBABILISTIC:
        return
    rng = case.rng("rounding")
    for app_id, win in case.outcome.wins.items():
        share = case.outcome.shares[app_id]
        if not _MIN_ODDS <= share * len(win.gangs) % 1.0 <= 1.0 - _MIN_ODDS:
            continue
        gangs, shares = dict.fromkeys((app_id, _TWIN), win.gangs), dict.fromkeys((app_id, _TWIN), share)
        rounds = [keep_shares(gangs, shares, {}, rng.getrandbits(63)) for _ in range(_DRAWS)]
        if len({len(kept[app_id]) for kept in rounds}) == 1:
            yield f"{app_id} keeps as many gangs whatever the seed"
        if all(len(kept[app_id]) == len(kept[_TWIN]) for kept in rounds):
            yield f"{app_id} and a twin keep as many gangs as each other whatever the seed"


def _gpus(gangs: tuple[PlacedGang, ...]) -> int:
    return sum(gang.gpus.gpus for gang in gangs)


def _problems(case: Case, snapshot: RoundSnapshot, decision: Decision) -> Iterator[str]:
    rounding = snapshot.settings.rounding
    for app_id, kept in decision.auction.items():
        win = case.outcome.wins.get(app_id)
        yield from _not_as_won(app_id, kept, () if win is None else win.gangs, snapshot)
        if win is not None and rounding is Rounding.PROBABILISTIC:
            yield from _not_the_share(app_id, len(kept), case.outcome.shares[app_id] * len(win.gangs))
    for app_id, gangs in decision.leftovers.items():
        yield from _beyond_demand(app_id, gangs, snapshot)
    twice = overused(snapshot.machines, (gang for gangs in decision.grants().values() for gang in gangs))
    yield from twice
    if not twice and (idle := usable_left(snapshot.machines, decision)):
        yield f"{idle} free GPUs stay idle though a job could use them"


def _not_as_won(
    app_id: str, kept: tuple[PlacedGang, ...], won: tuple[PlacedGang, ...], snapshot: RoundSnapshot
) -> Iterator[str]:
    """Gangs are kept whole. `by_gpu` and `capped` may cut one of them to a size that a job can run on."""
    parts = list((Counter(kept) - Counter(won)).elements())
    if not parts:
        return
    may_cut = snapshot.settings.rounding in _CUTTING and len(parts) == 1
    if not may_cut or not any(_is_part(parts[0], gang) for gang in Counter(won) - Counter(kept)):
        yield f"{app_id} keeps gangs that it did not win, or parts of gangs"
    elif not any(_can_run(demand, parts[0]) for demand in snapshot.reports[app_id].demands):
        yield f"{app_id} keeps {parts[0].gpus.by_machine()} of a gang, none of its jobs can run on that"


def _is_part(part: PlacedGang, gang: PlacedGang) -> bool:
    return part.gpus.within(gang.gpus) and replace(part, gpus=gang.gpus) == gang


def _can_run(demand: GangDemand, gang: PlacedGang) -> bool:
    return gang.gpus.gpus >= demand.min_gpus and _of_use(gang, demand)


def _not_the_share(app_id: str, kept: int, expected: float) -> Iterator[str]:
    if not math.floor(expected - 1e-9) <= kept <= math.ceil(expected + 1e-9):
        yield f"{app_id} keeps {kept} gangs where c k is {expected!r}"


def _beyond_demand(app_id: str, gangs: tuple[PlacedGang, ...], snapshot: RoundSnapshot) -> Iterator[str]:
    """Each gang of the leftovers must serve a job of its own, alone or together with the GPUs that the job won."""
    demands = snapshot.reports[app_id].demands
    if not all_served(gangs, demands, _of_use):
        yield f"{app_id} gets {[gang.gpus.by_machine() for gang in gangs]} of the leftovers, its jobs cannot use that"


def _of_use(gang: PlacedGang, demand: GangDemand) -> bool:
    return gang.gpus.gpus <= demand.max_gpus and all(count % demand.unit_gpus == 0 for _, count in gang.gpus)
