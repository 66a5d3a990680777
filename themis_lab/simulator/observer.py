"""Observe a run while it is made, for callers that need more than its record."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from rm_plugin.arbiter.rounds import RoundResult
from themis.leases import LeaseChange


class Observer(Protocol):
    """Gets every round and every lease change."""

    def round_played(self, result: RoundResult) -> None:
        """Called after a round is decided and its leases are granted, before apps act on it."""
        ...

    def leases_changed(self, changes: Sequence[LeaseChange]) -> None:
        """Called with lease changes, in their order."""
        ...


@dataclass(slots=True)
class History:
    """Keeps all rounds and changes. For short runs."""

    results: list[RoundResult] = field(default_factory=list)
    changes: list[LeaseChange] = field(default_factory=list)

    def round_played(self, result: RoundResult) -> None:
        """Keep the round."""
        self.results.append(result)

    def leases_changed(self, changes: Sequence[LeaseChange]) -> None:
        """Keep the changes."""
        self.changes += changes
