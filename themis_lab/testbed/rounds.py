"""Rounds, reconstructed from events."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from themis_lab.testbed.events import Event

PREFIX = "round_"


@dataclass(slots=True, kw_only=True)
class RoundTrail:
    """The events of one round, by kind and in order."""

    round_id: int
    events: list[Event] = field(default_factory=list)

    def detail(self, kind: str) -> Mapping[str, Any]:
        """The detail of the round's event of this kind. Empty if there is none."""
        return next((event.detail for event in self.events if event.kind == kind), {})

    def count(self, kind: str) -> int:
        """The round's number of events of this kind."""
        return sum(event.kind == kind for event in self.events)

    @property
    def start_s(self) -> float:
        """Time of its first event, in seconds since the epoch."""
        return self.events[0].time_s


def round_trails(events: Iterable[Event]) -> list[RoundTrail]:
    """All rounds, in order of their first event."""
    trails: dict[int, RoundTrail] = {}
    for event in events:
        if event.kind.startswith(PREFIX):
            round_id = int(event.detail["round_id"])
            trails.setdefault(round_id, RoundTrail(round_id=round_id)).events.append(event)
    return list(trails.values())


def granted_by_machine(detail: Mapping[str, Any]) -> Counter[tuple[str, str]]:
    """GPUs by app and machine in a `round_granted`, auction and leftovers together."""
    granted: Counter[tuple[str, str]] = Counter()
    for part in ("auction", "leftovers"):
        for app_id, machines in detail.get(part, {}).items():
            for machine, gpus in machines.items():
                granted[str(app_id), str(machine)] += int(gpus)
    return granted


def granted_gpus(detail: Mapping[str, Any], *parts: str) -> Counter[str]:
    """GPUs by app in a `round_granted`, in the named parts or in both."""
    chosen = {part: detail.get(part, {}) for part in parts or ("auction", "leftovers")}
    granted: Counter[str] = Counter()
    for (app_id, _), gpus in granted_by_machine(chosen).items():
        granted[app_id] += gpus
    return granted
