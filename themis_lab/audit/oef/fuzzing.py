"""Check every property and claim on one random instance after another, and shrink what fails."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random

from rm_plugin.arbiter.seeds import child_seed
from rm_plugin.policies.oef.speedup import Instance
from themis_lab.audit.oef.instances import instance_document, random_instance, smaller
from themis_lab.audit.oef.properties import CLAIMS, PROPERTIES, Check

MAX_SHRUNK = 5
"""Failures of one property that are shrunk and shown; of a claim the first one only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OefFinding:
    """A property or claim that failed, on the smallest instance found."""

    name: str
    number: int
    what: str
    instance: Instance


@dataclass(slots=True, kw_only=True)
class OefAudit:
    """Results so far.

    Attributes:
        seed: Of all random choices.
        planned: Instances to draw.
        drawn: Instances checked.
        failed: By property or claim, how often it failed.
        findings: Failures with their shrunk instances.
        ended: `all`, `time` or `interrupted`.
    """

    seed: int
    planned: int
    names: Sequence[str]
    drawn: int = 0
    failed: Counter[str] = field(default_factory=Counter)
    findings: list[OefFinding] = field(default_factory=list)
    ended: str = "all"

    @property
    def violations(self) -> int:
        """Failures of what must hold."""
        return sum(self.failed[name] for name in PROPERTIES)


def audit_oef(found: OefAudit, keep_going: Callable[[], bool]) -> OefAudit:
    """Check the planned instances.

    Args:
        found: Seed, number and names; updated during the run, so that it can be read after Ctrl-C.
        keep_going: Called before each instance and while shrinking; the run ends when it returns False.
    """
    checks = {**PROPERTIES, **CLAIMS}
    try:
        for number in range(found.planned):
            if not keep_going():
                found.ended = "time"
                break
            instance = random_instance(found.seed, number)
            for name in found.names:
                _examine(found, name, checks[name], number, instance, keep_going)
            found.drawn += 1
    except KeyboardInterrupt:
        found.ended = "interrupted"
    return found


def _examine(
    found: OefAudit, name: str, check: Check, number: int, instance: Instance, keep_going: Callable[[], bool]
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
    if found.failed[name] > (MAX_SHRUNK if name in PROPERTIES else 1):
        return
    found.findings.append(OefFinding(name=name, number=number, what=what[0], instance=instance))
    raised = what[0].startswith("raises")
    while keep_going():
        for candidate in smaller(instance):
            less = problems(candidate)
            if less and less[0].startswith("raises") == raised:
                instance = candidate
                found.findings[-1] = OefFinding(name=name, number=number, what=less[0], instance=candidate)
                break
        else:
            return


def document(found: OefAudit) -> dict[str, object]:
    """The results as a JSON document."""
    return {
        "mechanism": "oef",
        "seed": found.seed,
        "instances": found.drawn,
        "instances_planned": found.planned,
        "ended": found.ended,
        "properties": {name: found.failed[name] for name in found.names if name in PROPERTIES},
        "claims": {name: found.failed[name] for name in found.names if name in CLAIMS},
        "findings": [
            {
                "name": finding.name,
                "number": finding.number,
                "what": finding.what,
                "instance": instance_document(finding.instance),
            }
            for finding in found.findings
        ],
    }


def text(found: OefAudit) -> str:
    """The results for readers."""
    lines = [f"{found.drawn} of {found.planned} instances of OEF, seed {found.seed}; ended: {found.ended}", ""]
    width = max(map(len, found.names), default=0)
    for name in found.names:
        kind = "violations" if name in PROPERTIES else "counterexamples to the paper's claim"
        lines.append(f"{name.ljust(width)}  {found.failed[name]} {kind}")
    for finding in found.findings:
        kind = "VIOLATION of" if finding.name in PROPERTIES else "Counterexample to"
        lines += ["", f"{kind} {finding.name} in instance {finding.number}, shrunk: {finding.what}"]
        lines.append(json.dumps(instance_document(finding.instance)))
    return "\n".join(lines) + "\n"
