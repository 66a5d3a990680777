"""N_avg: the time-weighted mean number of active apps over each app's life so far (NSDI'20, section 4.3.1)."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
from msgspec import field
from numpy.typing import NDArray

from themis.errors import InvariantError
from themis.values import Value

Figures = NDArray[np.float64]


class Contentions(Value, frozen=True, kw_only=True):
    """N_avg of every app at one moment, computed on request.

    Attributes:
        now_s: The moment.
        active: Apps active then.
        integral_app_s: Number of active apps, integrated over time until then.
        since: When each app entered, and the integral at that time.
    """

    now_s: float = 0.0
    active: int = 0
    integral_app_s: float = 0.0
    since: Mapping[str, tuple[float, float]] = field(default_factory=dict)

    def of(self, app_id: str) -> float:
        """Return N_avg of an app, itself included; at least 1, even if clocks differ slightly.

        For an app that entered at this moment, or is unknown, it is the number of active apps.

        Example: an app shared the cluster with another one for 50 s, and was then alone for 50 s. Its N_avg is
        (2 * 50 + 1 * 50) / 100 = 1.5.
        """
        entered_s, before_app_s = self.since.get(app_id, (self.now_s, 0.0))
        life_s = self.now_s - entered_s
        if life_s <= 0.0:
            return float(max(1, self.active))
        mean = (self.integral_app_s - before_app_s) / life_s
        return mean if mean > 1.0 else 1.0

    def of_all(self, entered_s: Figures, before_app_s: Figures) -> Figures:
        """`of` many apps, given their entries of `since`; bit-identical."""
        lives_s = self.now_s - entered_s
        lived_app_s = self.integral_app_s - before_app_s
        if lives_s.min(initial=math.inf) > 0.0:
            # Usually no app entered at this moment.
            return np.maximum(lived_app_s / lives_s, 1.0)
        new = lives_s <= 0.0
        return np.where(new, float(max(1, self.active)), np.maximum(lived_app_s / np.where(new, 1.0, lives_s), 1.0))


class Contention:
    """Counts active apps over time. The mean of every app follows from one running integral."""

    def __init__(self) -> None:
        self._since: dict[str, tuple[float, float]] = {}
        self._integral_app_s = 0.0
        self._at_s = 0.0

    @property
    def active(self) -> int:
        """Number of apps active now."""
        return len(self._since)

    def enter(self, app_id: str, now_s: float) -> None:
        """An app became active."""
        self._advance(now_s)
        self._since[app_id] = (now_s, self._integral_app_s)

    def leave(self, app_id: str, now_s: float) -> None:
        """An app ended."""
        self._advance(now_s)
        self._since.pop(app_id, None)

    def mean(self, app_id: str, now_s: float) -> float:
        """N_avg of an active app. Raises KeyError for any other."""
        return self._at(now_s, {app_id: self._since[app_id]}).of(app_id)

    def at(self, now_s: float) -> Contentions:
        """N_avg of every app that is active now."""
        # `dict()` would copy one by one the entries of a dictionary from which entries were deleted.
        return self._at(now_s, self._since.copy())

    def _at(self, now_s: float, since: Mapping[str, tuple[float, float]]) -> Contentions:
        if now_s != self._at_s:
            self._advance(now_s)
        return Contentions(now_s=now_s, active=self.active, integral_app_s=self._integral_app_s, since=since)

    def _advance(self, now_s: float) -> None:
        if now_s < self._at_s:
            raise InvariantError("time ran backwards", value=(self._at_s, now_s))
        if self._since:
            self._integral_app_s += len(self._since) * (now_s - self._at_s)
        self._at_s = now_s
