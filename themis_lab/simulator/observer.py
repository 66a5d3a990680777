"""Being told of a run as it goes, for those who want more of it than its record keeps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from rm_plugin.arbiter.rounds import RoundResult
from themis.leases import LeaseChange


class Observer(Protocol):
    """Hears of every round and of every lease."""

    def round_played(self, result: RoundResult) -> None:
        """A round was decided and its leases were given; no app has acted on it yet."""
        ...

    def leases_changed(self, changes: Sequence[LeaseChange]) -> None:
        """Leases changed, in this order."""
        ...


@dataclass(slots=True)
class History:
    """Keeps all that it hears: for short runs."""

    results: list[RoundResult] = field(default_factory=list)
    changes: list[LeaseChange] = field(default_factory=list)

    def round_played(self, result: RoundResult) -> None:
        """Keep the round."""
        self.results.append(result)

    def leases_changed(self, changes: Sequence[LeaseChange]) -> None:
        """Keep the changes."""
        self.changes += changes
