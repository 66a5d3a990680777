"""Rounds as their events tell them."""

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
        """What the round's event of this kind says; empty when there is none."""
        return next((event.detail for event in self.events if event.kind == kind), {})

    def count(self, kind: str) -> int:
        """How many events of this kind the round has."""
        return sum(event.kind == kind for event in self.events)

    @property
    def start_s(self) -> float:
        """When its first event was recorded, in seconds since the epoch."""
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
    """GPUs by app and machine that a `round_granted` gives, auction and leftovers together."""
    granted: Counter[tuple[str, str]] = Counter()
    for part in ("auction", "leftovers"):
        for app_id, machines in detail.get(part, {}).items():
            for machine, gpus in machines.items():
                granted[str(app_id), str(machine)] += int(gpus)
    return granted


def granted_gpus(detail: Mapping[str, Any], *parts: str) -> Counter[str]:
    """GPUs by app that a `round_granted` gives, in the named parts or in both."""
    chosen = {part: detail.get(part, {}) for part in parts or ("auction", "leftovers")}
    granted: Counter[str] = Counter()
    for (app_id, _), gpus in granted_by_machine(chosen).items():
        granted[app_id] += gpus
    return granted
