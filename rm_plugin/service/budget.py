"""A budget that refills with time (a token bucket): a burst is fine, a lasting excess is not. Pure: no clock."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class Budget:
    """At most `most` at once, refilled by `per_s` each second.

    Example: with most 3 and per_s 1, four takes of 1 at the same time are allowed, allowed, allowed and refused. One
    second later another one is allowed.
    """

    most: float
    per_s: float
    _left: float = field(init=False)
    _seen_s: float = 0.0

    def __post_init__(self) -> None:
        self._left = self.most

    def has(self, amount: float, now_s: float) -> bool:
        """Whether an amount is left."""
        self._left = min(self.most, self._left + max(0.0, now_s - self._seen_s) * self.per_s)
        self._seen_s = now_s
        return amount <= self._left

    def take(self, amount: float, now_s: float) -> bool:
        """Take an amount if as much is left. Returns whether it was taken."""
        allowed = self.has(amount, now_s)
        if allowed:
            self._left -= amount
        return allowed
