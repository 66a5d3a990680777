"""A budget that refills with time (a token bucket): a burst is fine, a lasting excess is not. Pure: no clock."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field

MAX_KEYS = 10_000
"""Budgets kept at the same time: a few MB."""


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

    def spend(self, amount: float, now_s: float) -> None:
        """Take an amount that cannot be refused, also if less is left. The debt is at most `most`."""
        self.has(0.0, now_s)
        self._left = max(-self.most, self._left - amount)

    def wait_s(self, now_s: float) -> float:
        """Return the seconds until the budget is out of debt; 0 if it has none."""
        self.has(0.0, now_s)
        return max(0.0, -self._left / self.per_s)


class Budgets:
    """A budget for each caller. Of more than `MAX_KEYS`, the one that took least recently is forgotten.

    Args:
        most: As in `Budget`.
        per_s: As in `Budget`.
    """

    def __init__(self, most: float, per_s: float) -> None:
        self._most, self._per_s = most, per_s
        self._of: OrderedDict[str, Budget] = OrderedDict()

    def take(self, key: str, now_s: float, amount: float = 1.0) -> bool:
        """Take an amount from the budget of a caller if as much is left. Returns whether it was taken."""
        return self.of(key).take(amount, now_s)

    def of(self, key: str) -> Budget:
        """Return the budget of a caller."""
        budget = self._of.setdefault(key, Budget(self._most, self._per_s))
        self._of.move_to_end(key)
        if len(self._of) > MAX_KEYS:
            self._of.popitem(last=False)
        return budget
