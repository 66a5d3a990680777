"""Fuzzing of the auction: check every property and measure on one random market after another.

It ends when all markets are done, when time is up, or at Ctrl-C.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

from msgspec.structs import replace

from rm_plugin.arbiter.seeds import child_seed
from themis.bids import Market
from themis.values import Value
from themis_lab.audit.case import Case, Mechanism
from themis_lab.audit.families import Family
from themis_lab.audit.measures.registry import MEASURES
from themis_lab.audit.properties.registry import PROPERTIES, Property
from themis_lab.audit.sharing import WorldRho, simulate_world
from themis_lab.audit.shrink import shrink
from themis_lab.audit.tally import Tally
from themis_lab.audit.values import Finding, Sample

MAX_SHRUNK = 10
"""Violations of one property that are shrunk and shown; further ones are only counted."""


class FuzzPlan(Value, frozen=True, kw_only=True):
    """What to check: families in turn, the total numbers of markets and worlds, and properties and measures by name."""

    families: Sequence[Family]
    markets: int
    seed: int
    mechanism: Mechanism
    properties: Sequence[str] = tuple(PROPERTIES)
    measures: Sequence[str] = tuple(MEASURES)
    worlds: int = 0


@dataclass(slots=True)
class FuzzResult:
    """Results of a fuzzing run so far.

    Attributes:
        drawn: Number of markets by family.
        checked: How often each property applied to a market.
        broken: How often each property was violated.
        findings: The first violations of each property, each with the smallest market found so far.
        tallies: Samples by (measure, family).
        worlds: Rho of the worlds simulated for the sharing incentive.
        unsolved: Number of markets by family in which a problem ran out of time.
        unreferenced: Number of problems by family that `optimality` skipped because its reference ran out of time.
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


def fuzz(
    plan: FuzzPlan, found: FuzzResult, *, keep_going: Callable[[], bool], on_market: Callable[[FuzzResult], None]
) -> FuzzResult:
    """Check all markets of a plan.

    Args:
        plan: What to check.
        found: Updated during the run, so that the caller can read it after Ctrl-C.
        keep_going: Called before each market and during shrinking; the run ends when it returns False.
        on_market: Called after each market with the results so far.

    Returns:
        `found`.
    """
    fuzzer = _Fuzzer(plan, found, keep_going)
    try:
        for step in fuzzer.steps():
            if not keep_going():
                found.ended = "time"
                break
            step()
            on_market(found)
    except KeyboardInterrupt:
        found.ended = "interrupted"
    return found


def attempt(check: Property, case: Case) -> list[str] | None:
    """Return what a property reports. An exception counts as a violation too, because it would have ended a round."""
    try:
        return check(case)
    except Exception as error:
        return [f"raises {type(error).__name__}: {error}"]


class _Fuzzer(Value, frozen=True):
    plan: FuzzPlan
    found: FuzzResult
    keep_going: Callable[[], bool]

    def steps(self) -> Iterator[Callable[[], None]]:
        """The worlds first, because they are few, then the markets, families in turn."""
        for number in range(self.plan.worlds):
            yield partial(self._simulate, number)
        families = self.plan.families
        for index in range(self.plan.markets):
            yield partial(self._examine, families[index % len(families)], index // len(families))

    def _simulate(self, number: int) -> None:
        self.found.worlds.append(simulate_world(self.plan.seed, number, self.plan.mechanism.make_solver))

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
            # A measure cannot be violated, but it can raise.
            if not self._breaks(name, partial(_runs, name), family, number, case):
                self._tally(_samples(name, case), family, number, case.market)

    def _breaks(self, name: str, check: Property, family: Family, number: int, case: Case) -> bool:
        """Check one property. Returns True if it is violated."""
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
        """Keep a violation, and replace its market by ever smaller ones, because shrinking may be interrupted."""
        if self.found.broken[finding.property_name] > MAX_SHRUNK:
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

        shrink(finding.market, persists, self.keep_going)


def _is_solved(case: Case) -> list[str]:
    return [] if case.solved else ["out of time"]


def _samples(name: str, case: Case) -> list[Sample]:
    return case.once(f"samples of {name}", lambda: MEASURES[name](case))


def _runs(name: str, case: Case) -> list[str]:
    _samples(name, case)
    return []


def _kind(what: str) -> str:
    """Return the kind of problem that must persist while a market shrinks: the same exception, or any other problem."""
    return what.partition(":")[0] if what.startswith("raises") else ""
