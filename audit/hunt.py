"""The hunt: market after market, every property and measure on each, until all are done, time is up, or Ctrl-C."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

from audit.case import Case, Mechanism
from audit.families import Family
from audit.measures.registry import MEASURES
from audit.properties.registry import PROPERTIES, Property
from audit.sharing import WorldRho, play_world
from audit.shrink import shrink
from audit.tally import Tally
from audit.values import Finding
from rm_plugin.arbiter.seeds import child_seed
from themis.bids import Market

MOST_SHRUNK = 10
"""Findings of one property that are shrunk and shown; more are only counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What to hunt for: families in turn, so many markets and worlds in all, properties and measures by name."""

    families: Sequence[Family]
    markets: int
    seed: int
    mechanism: Mechanism
    properties: Sequence[str] = tuple(PROPERTIES)
    measures: Sequence[str] = tuple(MEASURES)
    worlds: int = 0


@dataclass(slots=True)
class Found:
    """What a hunt has found so far.

    Attributes:
        drawn: Markets by family.
        checked: How often each property said something of a market.
        broken: How often each did not hold.
        findings: The first of each property, shrunk.
        tallies: Samples by (measure, family).
        worlds: Rho of the worlds played for the sharing incentive.
        unsolved: Markets by family of which a problem ran out of time.
        ended: `all`, `time` or `interrupted`.
    """

    drawn: Counter[str] = field(default_factory=Counter)
    checked: Counter[str] = field(default_factory=Counter)
    broken: Counter[str] = field(default_factory=Counter)
    findings: list[Finding] = field(default_factory=list)
    tallies: dict[tuple[str, str], Tally] = field(default_factory=dict)
    unsolved: Counter[str] = field(default_factory=Counter)
    worlds: list[WorldRho] = field(default_factory=list)
    ended: str = "all"


def hunt(plan: Plan, found: Found, *, go_on: Callable[[], bool], told: Callable[[Found], None]) -> Found:
    """Hunt through all markets of a plan.

    Args:
        plan: What to hunt for.
        found: Filled as the hunt goes on, so that it can be read after Ctrl-C.
        go_on: Asked before each market; the hunt ends when it says no.
        told: Called after each market.

    Returns:
        `found`.
    """
    try:
        for step in _steps(plan, found):
            if not go_on():
                found.ended = "time"
                break
            step()
            told(found)
    except KeyboardInterrupt:
        found.ended = "interrupted"
    return found


def _steps(plan: Plan, found: Found) -> Iterator[Callable[[], None]]:
    """The worlds, which are few, then the markets."""
    for number in range(plan.worlds):
        yield partial(_play, plan, number, found)
    for family, number in draws(plan):
        yield partial(_examine, plan, family, number, found)


def _play(plan: Plan, number: int, found: Found) -> None:
    found.worlds.append(play_world(plan.seed, number, plan.mechanism.make_solver))


def draws(plan: Plan) -> Iterator[tuple[Family, int]]:
    """Families in turn, each with the number of its next market."""
    for index in range(plan.markets):
        yield plan.families[index % len(plan.families)], index // len(plan.families)


def _examine(plan: Plan, family: Family, number: int, found: Found) -> None:
    market = family.market(plan.seed, number)
    seed = child_seed(plan.seed, "case", family.name, str(number))
    case = Case(market, plan.mechanism, seed=seed)
    found.drawn[family.name] += 1
    solved = attempt(_is_solved, case)
    found.unsolved[family.name] += solved is None
    for name in plan.properties:
        problems = attempt(PROPERTIES[name], case)
        if problems is None:
            continue
        found.checked[name] += 1
        if problems:
            found.broken[name] += 1
            _remember(
                found,
                plan.mechanism,
                Finding(property_name=name, family=family.name, number=number, what=problems[0], market=market),
                seed,
            )
    if solved == [] and family.group:
        _measure(plan, family, case, found, number)


def _measure(plan: Plan, family: Family, case: Case, found: Found, number: int) -> None:
    for name in plan.measures:
        for sample in MEASURES[name](case):
            tally = found.tallies.setdefault((sample.measure, family.name), Tally())
            tally.add(sample, number, case.market)


def _is_solved(case: Case) -> list[str] | None:
    return [] if case.solved else None


def attempt(check: Property, case: Case) -> list[str] | None:
    """What a property says; an exception is a finding like any other, since a round would have died of it."""
    try:
        return check(case)
    except Exception as error:
        return [f"raises {type(error).__name__}: {error}"]


def _remember(found: Found, mechanism: Mechanism, finding: Finding, seed: int) -> None:
    if found.broken[finding.property_name] > MOST_SHRUNK:
        return
    check = PROPERTIES[finding.property_name]

    def persists(market: Market) -> bool:
        return bool(attempt(check, Case(market, mechanism, seed=seed)))

    market = shrink(finding.market, persists)
    problems = attempt(check, Case(market, mechanism, seed=seed)) or [finding.what]
    found.findings.append(
        Finding(
            property_name=finding.property_name,
            family=finding.family,
            number=finding.number,
            what=problems[0],
            market=market,
        )
    )
