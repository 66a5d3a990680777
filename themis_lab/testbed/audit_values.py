"""Input and result of the audit."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import field

from themis.choices import Bidders
from themis.queues import ONE_QUEUE, Queues
from themis.values import Value
from themis_lab.testbed.events import Event

JobKey = tuple[str, str]
"""App id and job id."""


class AuditLimits(Value, frozen=True, kw_only=True):
    """Bounds in seconds, and the settings of the rounds.

    Attributes:
        lease_s: Length of a lease.
        grace_s: How long a lease may exist past its end before it must have been revoked.
        round_s: Longest time from an event to the end of the round that it causes.
        clock_s: Largest difference of two clocks. One machine has one clock, so only rounding remains.
        notice_s: How late the end of a killed process may be noticed and recorded.
        policy: Name of the policy.
        f: The fairness knob of the policy `themis`.
        bidders: Which apps it asks to bid.
    """

    lease_s: float
    grace_s: float
    round_s: float
    clock_s: float = 0.01
    notice_s: float = 1.0
    policy: str = "themis"
    f: float = 0.8
    bidders: Bidders = Bidders.WORST_RHO


class AuditedJob(Value, frozen=True, kw_only=True):
    """A job at the end of the run: its state, the iteration it had to reach, its smallest gang, and its device types.

    `devices` are the types on which it can run, empty for any type.
    """

    state: str = ""
    target_iteration: int = 0
    min_tasks: int = 1
    gpus_per_task: int = 1
    devices: tuple[str, ...] = ()


class HistoryLine(Value, frozen=True, kw_only=True):
    """A line written by a job's chief task. `event` is start, checkpoint, stop or end.

    `iteration` is where it starts, or what is saved from then on.
    """

    incarnation: int
    event: str
    iteration: int


class AuditInput(Value, frozen=True, kw_only=True):
    """A run to audit.

    Attributes:
        events: All events in order of their sequence.
        gpus: Every GPU of the cluster, MACHINE/INDEX.
        limits: The settings of the run.
        jobs: Jobs at the end, where known.
        histories: What the tasks wrote, an independent record.
        device_of: The device type of each machine; empty if the cluster has one type.
        rho: The final rho by definition that the ResourceManager reported of each app that finished.
        queues: The weights of queues and users.
    """

    events: tuple[Event, ...]
    gpus: tuple[str, ...]
    limits: AuditLimits
    jobs: Mapping[JobKey, AuditedJob] = field(default_factory=dict)
    histories: Mapping[JobKey, tuple[HistoryLine, ...]] = field(default_factory=dict)
    device_of: Mapping[str, str] = field(default_factory=dict)
    rho: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    queues: Queues = ONE_QUEUE

    @property
    def end_s(self) -> float:
        """End of the record, in seconds since the epoch."""
        return max((event.time_s for event in self.events), default=0.0)

    @property
    def start_s(self) -> float:
        """Start of the record, in seconds since the epoch."""
        return min((event.time_s for event in self.events), default=0.0)


class AuditResult(Value, frozen=True, kw_only=True):
    """Result of an audit.

    Attributes:
        checks: How many cases each check examined; 0 means that the run had none.
        violations: One line each, starting with the check's name.
        measured: Numbers without a limit, by name with their unit.
    """

    checks: Mapping[str, int]
    violations: tuple[str, ...]
    measured: Mapping[str, float]

    @property
    def clean(self) -> bool:
        """Whether there are no violations."""
        return not self.violations


class Findings:
    """Collect the findings of checks.

    Each check must be announced before it counts, so that checks without cases are listed.

    Args:
        start_s: Texts give times in seconds from here.
    """

    def __init__(self, start_s: float) -> None:
        self._start_s = start_s
        self._checks: dict[str, int] = {}
        self._violations: list[str] = []
        self._measured: dict[str, float] = {}

    def announce(self, *checks: str) -> None:
        """Announce checks."""
        for check in checks:
            self._checks.setdefault(check, 0)

    def look(self, check: str, holds: bool, otherwise: str) -> None:
        """Count one case. If it does not hold, `otherwise` says what is wrong."""
        self._checks[check] += 1
        if not holds:
            self._violations.append(f"{check}: {otherwise}")

    def measure(self, name: str, value: float) -> None:
        """Add to a measured number."""
        self._measured[name] = self._measured.get(name, 0.0) + value

    def at(self, time_s: float) -> str:
        """A time as text."""
        return f"{time_s - self._start_s:.2f} s"

    def result(self) -> AuditResult:
        """Return the result."""
        return AuditResult(checks=dict(self._checks), violations=tuple(self._violations), measured=dict(self._measured))
