"""A budget that refills with time (a token bucket): a burst is fine, a lasting excess is not. Pure: no clock."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Budget:
    """At most `most` at once, refilled by `per_s` each second.

    Example: with most 3 and per_s 1, four takes of 1 at the same time are allowed, allowed, allowed and refused. One
    second later another one is allowed.
    """

    most: float
    per_s: float
    _left: float | None = None
    _seen_s: float = 0.0

    def take(self, amount: float, now_s: float) -> bool:
        """Take an amount if as much is left. Returns whether it was taken."""
        left = self.most if self._left is None else self._left
        left = min(self.most, left + max(0.0, now_s - self._seen_s) * self.per_s)
        allowed = amount <= left
        self._left, self._seen_s = left - amount if allowed else left, now_s
        return allowed
