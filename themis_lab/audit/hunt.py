"""The hunt: market after market, every property and measure on each, until all are done, time is up, or Ctrl-C."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from rm_plugin.arbiter.seeds import child_seed
from themis.bids import Market
from themis_lab.audit.case import Case, Mechanism
from themis_lab.audit.families import Family
from themis_lab.audit.measures.registry import MEASURES
from themis_lab.audit.properties.registry import PROPERTIES, Property
from themis_lab.audit.sharing import WorldRho, play_world
from themis_lab.audit.shrink import shrink
from themis_lab.audit.tally import Tally
from themis_lab.audit.values import Finding, Sample

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
        findings: The first of each property, each with the smallest market so far.
        tallies: Samples by (measure, family).
        worlds: Rho of the worlds played for the sharing incentive.
        unsolved: Markets by family of which a problem ran out of time.
        unreferenced: Problems by family that `optimality` left out, since the reference ran out of time.
        ended: `all`, `time` or `interrupted`.
    """

    drawn: Counter[str] = field(default_factory=Counter)
    checked: Counter[str] = field(default_factory=Counter)
    broken: Counter[str] = field(default_factory=Counter)
    findings: list[Finding] = field(default_factory=list)
    tallies: dict[tuple[str, str], Tally] = field(default_factory=dict)
    unsolved: Counter[str] = field(default_factory=Counter)
    unreferenced: Counter[str] = field(default_factory=Counter)
    worlds: list[WorldRho] = field(default_factory=list)
    ended: str = "all"


def hunt(plan: Plan, found: Found, *, go_on: Callable[[], bool], told: Callable[[Found], None]) -> Found:
    """Hunt through all markets of a plan.

    Args:
        plan: What to hunt for.
        found: Filled as the hunt goes on, so that it can be read after Ctrl-C.
        go_on: Asked before each market, and while one is shrunk; the hunt ends when it says no.
        told: Called after each market.

    Returns:
        `found`.
    """
    hunter = _Hunter(plan, found, go_on)
    try:
        for step in hunter.steps():
            if not go_on():
                found.ended = "time"
                break
            step()
            told(found)
    except KeyboardInterrupt:
        found.ended = "interrupted"
    return found


def attempt(check: Property, case: Case) -> list[str] | None:
    """What a property says; an exception is a finding like any other, since a round would have died of it."""
    try:
        return check(case)
    except Exception as error:
        return [f"raises {type(error).__name__}: {error}"]


@dataclass(frozen=True, slots=True)
class _Hunter:
    plan: Plan
    found: Found
    go_on: Callable[[], bool]

    def steps(self) -> Iterator[Callable[[], None]]:
        """The worlds, which are few, then the markets, families in turn."""
        for number in range(self.plan.worlds):
            yield partial(self._play, number)
        families = self.plan.families
        for index in range(self.plan.markets):
            yield partial(self._examine, families[index % len(families)], index // len(families))

    def _play(self, number: int) -> None:
        self.found.worlds.append(play_world(self.plan.seed, number, self.plan.mechanism.make_solver))

    def _examine(self, family: Family, number: int) -> None:
        seed = child_seed(self.plan.seed, "case", family.name, str(number))
        case = Case(family.market(self.plan.seed, number), self.plan.mechanism, seed=seed)
        self.found.drawn[family.name] += 1
        for name in self.plan.properties:
            if self._breaks(name, PROPERTIES[name], family, number, case) and name == "answers":
                return
        solved = attempt(_is_solved, case) == []
        self.found.unsolved[family.name] += not solved
        self.found.unreferenced[family.name] += case.unreferenced
        for name in self.plan.measures if solved and family.group else ():
            # A measure cannot be broken, but it can raise.
            if not self._breaks(name, partial(_runs, name), family, number, case):
                self._tally(_samples(name, case), family, number, case.market)

    def _breaks(self, name: str, check: Property, family: Family, number: int, case: Case) -> bool:
        """Look at one property; True when it does not hold."""
        problems = attempt(check, case)
        if problems is None:
            return False
        self.found.checked[name] += 1
        if problems:
            self.found.broken[name] += 1
            finding = Finding(
                property_name=name, family=family.name, number=number, what=problems[0], market=case.market
            )
            self._remember(finding, check, case.seed)
        return bool(problems)

    def _tally(self, samples: Sequence[Sample], family: Family, number: int, market: Market) -> None:
        for sample in samples:
            tally = self.found.tallies.setdefault((sample.measure, family.name), Tally())
            tally.add(sample, number, market)

    def _remember(self, finding: Finding, check: Property, seed: int) -> None:
        """Keep a finding as it is, then with ever smaller markets: shrinking may be cut short."""
        if self.found.broken[finding.property_name] > MOST_SHRUNK:
            return
        findings = self.found.findings
        findings.append(finding)
        kind = _kind(finding.what)

        def persists(market: Market) -> bool:
            problems = attempt(check, Case(market, self.plan.mechanism, seed=seed))
            if not problems or _kind(problems[0]) != kind:
                return False
            findings[-1] = replace(finding, what=problems[0], market=market)
            return True

        shrink(finding.market, persists, self.go_on)


def _is_solved(case: Case) -> list[str]:
    return [] if case.solved else ["out of time"]


def _samples(name: str, case: Case) -> list[Sample]:
    return case.once(f"samples of {name}", lambda: MEASURES[name](case))


def _runs(name: str, case: Case) -> list[str]:
    _samples(name, case)
    return []


def _kind(what: str) -> str:
    """An exception must stay the same while a market shrinks; of other problems any will do."""
    return what.partition(":")[0] if what.startswith("raises") else ""
