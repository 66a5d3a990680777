"""What the audit goes by and what it finds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from themis_lab.testbed.events import Event

JobKey = tuple[str, str]
"""App id and job id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditLimits:
    """Bounds in seconds, and the choices that rounds went by.

    Attributes:
        lease_s: Length of a lease.
        grace_s: How long past its end a lease may live before it must have been taken by force.
        round_s: Longest time from an event to the end of the round that it calls for.
        clock_s: How much two clocks may differ; one machine has one clock, so only rounding is left.
        notice_s: How late the end of something that was killed may be noticed and recorded.
        policy: Name of the policy.
        f: The fairness knob of the policy `themis`.
    """

    lease_s: float
    grace_s: float
    round_s: float
    clock_s: float = 0.01
    notice_s: float = 1.0
    policy: str = "themis"
    f: float = 0.8


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditedJob:
    """A job at the end of the run: its state, the iteration it had to reach, and its smallest gang."""

    state: str = ""
    target_iteration: int = 0
    min_tasks: int = 1
    gpus_per_task: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryLine:
    """A line that a job's chief task wrote: `event` is start, checkpoint, stop or end.

    `iteration` is the one that it starts from, or that is safe from then on.
    """

    incarnation: int
    event: str
    iteration: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditInput:
    """A run to audit.

    Attributes:
        events: All events by sequence.
        gpus: Every GPU of the cluster, MACHINE/INDEX.
        limits: What the run went by.
        jobs: Jobs at the end, where known.
        histories: What tasks wrote themselves, an independent witness.
    """

    events: tuple[Event, ...]
    gpus: tuple[str, ...]
    limits: AuditLimits
    jobs: Mapping[JobKey, AuditedJob] = field(default_factory=dict)
    histories: Mapping[JobKey, tuple[HistoryLine, ...]] = field(default_factory=dict)

    @property
    def end_s(self) -> float:
        """When the record ends, in seconds since the epoch."""
        return max((event.time_s for event in self.events), default=0.0)

    @property
    def start_s(self) -> float:
        """When the record begins, in seconds since the epoch."""
        return min((event.time_s for event in self.events), default=0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditResult:
    """What an audit found.

    Attributes:
        checks: How many cases each check looked at; 0 says that the run gave it nothing to look at.
        violations: One line each, the check's name first.
        measured: Numbers that no rule bounds, by name with their unit.
    """

    checks: Mapping[str, int]
    violations: tuple[str, ...]
    measured: Mapping[str, float]

    @property
    def clean(self) -> bool:
        """True when nothing was found."""
        return not self.violations


class Findings:
    """Collects what checks find; each check must be announced before it counts, so that none is forgotten.

    Args:
        start_s: Times in texts are shown in seconds from here.
    """

    def __init__(self, start_s: float) -> None:
        self._start_s = start_s
        self._checks: dict[str, int] = {}
        self._violations: list[str] = []
        self._measured: dict[str, float] = {}

    def announce(self, *checks: str) -> None:
        """Name checks that are going to look."""
        for check in checks:
            self._checks.setdefault(check, 0)

    def look(self, check: str, holds: bool, otherwise: str) -> None:
        """Count one case; when it does not hold, `otherwise` says what is wrong."""
        self._checks[check] += 1
        if not holds:
            self._violations.append(f"{check}: {otherwise}")

    def measure(self, name: str, value: float) -> None:
        """Add to a number."""
        self._measured[name] = self._measured.get(name, 0.0) + value

    def at(self, time_s: float) -> str:
        """A time as texts show it."""
        return f"{time_s - self._start_s:.2f} s"

    def result(self) -> AuditResult:
        """All of it."""
        return AuditResult(checks=dict(self._checks), violations=tuple(self._violations), measured=dict(self._measured))
