"""Audit a mechanism that is fed instances: check every property and claim on random ones, and shrink what fails."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Generic, TypeVar

from rm_plugin.arbiter.seeds import child_seed
from themis.values import Value

Instance = TypeVar("Instance")

MAX_SHRUNK = 5
"""Failures of one property that are shrunk and shown; of a claim the first one only."""


class Subject(Value, Generic[Instance], frozen=True, kw_only=True):
    """A mechanism under audit.

    Attributes:
        key: Its name in commands and documents.
        title: Its name in sentences.
        properties: What must hold, by name; each returns its violations.
        claims: What its paper claims and is false, by name; counted, but no violations.
        draw: Makes instance `number` of a seed.
        document: The instance as the mechanism's command reads it.
        smaller: Instances one step smaller.
    """

    key: str
    title: str
    properties: Mapping[str, Callable[[Instance, Random], list[str]]]
    claims: Mapping[str, Callable[[Instance, Random], list[str]]]
    draw: Callable[[int, int], Instance]
    document: Callable[[Instance], dict[str, object]]
    smaller: Callable[[Instance], Iterable[Instance]]


class InstanceFinding(Value, Generic[Instance], frozen=True, kw_only=True):
    """A property or claim that failed, on the smallest instance found."""

    name: str
    number: int
    what: str
    instance: Instance


@dataclass(slots=True, kw_only=True)
class InstanceAudit(Generic[Instance]):
    """Results so far.

    Attributes:
        subject: What is audited.
        seed: Of all random choices.
        planned: Instances to draw.
        drawn: Instances checked.
        failed: By property or claim, how often it failed.
        findings: Failures with their shrunk instances.
        ended: `all`, `time` or `interrupted`.
    """

    subject: Subject[Instance]
    seed: int
    planned: int
    names: Sequence[str]
    drawn: int = 0
    failed: Counter[str] = field(default_factory=Counter)
    findings: list[InstanceFinding[Instance]] = field(default_factory=list)
    ended: str = "all"

    @property
    def violations(self) -> int:
        """Failures of what must hold."""
        return sum(self.failed[name] for name in self.subject.properties)


def audit_instances(found: InstanceAudit[Instance], keep_going: Callable[[], bool]) -> InstanceAudit[Instance]:
    """Check the planned instances.

    Args:
        found: Seed, number and names; updated during the run, so that it can be read after Ctrl-C.
        keep_going: Called before each instance and while shrinking; the run ends when it returns False.
    """
    subject = found.subject
    checks = {**subject.properties, **subject.claims}
    try:
        for number in range(found.planned):
            if not keep_going():
                found.ended = "time"
                break
            instance = subject.draw(found.seed, number)
            for name in found.names:
                _examine(found, name, checks[name], number, instance, keep_going)
            found.drawn += 1
    except KeyboardInterrupt:
        found.ended = "interrupted"
    return found


def _examine(
    found: InstanceAudit[Instance],
    name: str,
    check: Callable[[Instance, Random], list[str]],
    number: int,
    instance: Instance,
    keep_going: Callable[[], bool],
) -> None:
    def problems(candidate: Instance) -> list[str]:
        rng = Random(child_seed(found.seed, name, str(number)))
        try:
            return check(candidate, rng)
        except Exception as error:
            # An exception would end a round of the ResourceManager, so it is a violation too.
            return [f"raises {type(error).__name__}: {error}"]

    what = problems(instance)
    if not what:
        return
    found.failed[name] += 1
    if found.failed[name] > (MAX_SHRUNK if name in found.subject.properties else 1):
        return
    found.findings.append(InstanceFinding(name=name, number=number, what=what[0], instance=instance))
    raised = what[0].startswith("raises")
    while keep_going():
        for candidate in found.subject.smaller(instance):
            less = problems(candidate)
            if less and less[0].startswith("raises") == raised:
                instance = candidate
                found.findings[-1] = InstanceFinding(name=name, number=number, what=less[0], instance=candidate)
                break
        else:
            return


def document(found: InstanceAudit[Instance]) -> dict[str, object]:
    """The results as a JSON document."""
    return {
        "mechanism": found.subject.key,
        "seed": found.seed,
        "instances": found.drawn,
        "instances_planned": found.planned,
        "ended": found.ended,
        "properties": {name: found.failed[name] for name in found.names if name in found.subject.properties},
        "claims": {name: found.failed[name] for name in found.names if name in found.subject.claims},
        "findings": [
            {
                "name": finding.name,
                "number": finding.number,
                "what": finding.what,
                "instance": found.subject.document(finding.instance),
            }
            for finding in found.findings
        ],
    }


def text(found: InstanceAudit[Instance]) -> str:
    """The results for readers."""
    lines = [
        f"{found.drawn} of {found.planned} instances of {found.subject.title}, seed {found.seed}; ended: {found.ended}",
        "",
    ]
    width = max(map(len, found.names), default=0)
    for name in found.names:
        kind = "violations" if name in found.subject.properties else "counterexamples to the paper's claim"
        lines.append(f"{name.ljust(width)}  {found.failed[name]} {kind}")
    for finding in found.findings:
        kind = "VIOLATION of" if finding.name in found.subject.properties else "Counterexample to"
        lines += ["", f"{kind} {finding.name} in instance {finding.number}, shrunk: {finding.what}"]
        lines.append(json.dumps(found.subject.document(finding.instance)))
    return "\n".join(lines) + "\n"
