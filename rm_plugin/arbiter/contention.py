"""N_avg: the time-weighted mean number of active apps over each app's life so far (NSDI'20, section 4.3.1).

Apps have weights: users share the cluster by weight, and the apps of a user share equally (`themis.queues`). N of an
app is the weight of all active apps over its own, so that its fair share is still 1/N. If all weights are equal, N is
the number of active apps.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from msgspec import field
from numpy.typing import NDArray

from themis.errors import InvariantError
from themis.queues import NO_TENANT, ONE_QUEUE, Queues, Tenant
from themis.sums import sum_in_order
from themis.values import Value

Figures = NDArray[np.float64]


class Contentions(Value, frozen=True, kw_only=True):
    """N_avg of every app at one moment, computed on request.

    Attributes:
        now_s: The moment.
        active: Apps active then.
        integral_app_s: Number of active apps, integrated over time until then.
        since: When each app entered, and the integral at that time. The integral is corrected for an app of another
            weight, so that the difference of both is that of its own N.
        weights: The weight of each app relative to the mean app's, if it is not 1.
    """

    now_s: float = 0.0
    active: int = 0
    integral_app_s: float = 0.0
    since: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    weights: Mapping[str, float] = field(default_factory=dict)

    def of(self, app_id: str) -> float:
        """Return N_avg of an app, itself included; at least 1, even if clocks differ slightly.

        For an app that entered at this moment, or is unknown, it is the present N.

        Example: an app shared the cluster with another one for 50 s, and was then alone for 50 s. Its N_avg is
        (2 * 50 + 1 * 50) / 100 = 1.5.
        """
        entered_s, before_app_s = self.since.get(app_id, (self.now_s, 0.0))
        life_s = self.now_s - entered_s
        if life_s <= 0.0:
            return max(1.0, self.active / self.weights.get(app_id, 1.0))
        mean = (self.integral_app_s - before_app_s) / life_s
        return mean if mean > 1.0 else 1.0

    def of_all(self, app_ids: Sequence[str]) -> Figures:
        """`of` many apps; bit-identical. Each must be active."""
        moments = np.fromiter(
            (each for app_id in app_ids for each in self.since[app_id]), np.float64, 2 * len(app_ids)
        ).reshape(-1, 2)
        lives_s = self.now_s - moments[:, 0]
        lived_app_s = self.integral_app_s - moments[:, 1]
        if lives_s.min(initial=math.inf) > 0.0:
            # Usually no app entered at this moment.
            return np.maximum(lived_app_s / lives_s, 1.0)
        new = lives_s <= 0.0
        weights = np.fromiter((self.weights.get(app_id, 1.0) for app_id in app_ids), np.float64, len(app_ids))
        return np.maximum(np.where(new, self.active / weights, lived_app_s / np.where(new, 1.0, lives_s)), 1.0)

    def by_app(self, app_ids: Sequence[str]) -> dict[str, float]:
        """N_avg of each of some active apps."""
        return dict(zip(app_ids, self.of_all(app_ids).tolist(), strict=True))

    def weight(self, app_id: str) -> float:
        """The weight of an app, relative to the mean app's."""
        return self.weights.get(app_id, 1.0)


class Contention:
    """Tracks the active apps over time. The means of all apps of a tenant follow from one running integral.

    `_excess_app_s` is by how much the integral of a tenant's own N differs from that of the number of active apps.

    Args:
        queues: The weights of queues and users.
    """

    def __init__(self, queues: Queues = ONE_QUEUE) -> None:
        self._queues = queues
        self._since: dict[str, tuple[float, float]] = {}
        self._tenants: dict[str, Tenant] = {}
        self._counts: dict[Tenant, float] = {}
        self._weights: dict[Tenant, float] = {}
        self._excess_app_s: dict[Tenant, float] = {}
        self._integral_app_s = 0.0
        self._at_s = 0.0

    @property
    def active(self) -> int:
        """Number of apps active now."""
        return len(self._since)

    def enter(self, app_id: str, now_s: float, tenant: Tenant = NO_TENANT) -> None:
        """An app became active."""
        self._advance(now_s)
        self._tenants[app_id] = tenant
        self._counts[tenant] = self._counts.get(tenant, 0.0) + 1.0
        self._since[app_id] = (now_s, self._integral_app_s + self._excess_app_s.get(tenant, 0.0))
        self._reweigh()

    def leave(self, app_id: str, now_s: float) -> None:
        """An app ended."""
        self._advance(now_s)
        if self._since.pop(app_id, None) is None:
            return
        tenant = self._tenants.pop(app_id)
        self._counts[tenant] -= 1.0
        if not self._counts[tenant]:
            del self._counts[tenant]
            self._excess_app_s.pop(tenant, None)
        self._reweigh()

    def requeue(self, queues: Queues, tenants: Mapping[str, Tenant], now_s: float) -> None:
        """Other weights hold from now on, and apps may be in other queues."""
        self._advance(now_s)
        for app_id, (entered_s, before_app_s) in self._since.items():
            excess_app_s = self._excess_app_s.get(self._tenants[app_id], 0.0)
            self._since[app_id] = (entered_s, before_app_s - excess_app_s)
        self._queues, self._tenants, self._excess_app_s, self._counts = queues, dict(tenants), {}, {}
        for tenant in self._tenants.values():
            self._counts[tenant] = self._counts.get(tenant, 0.0) + 1.0
        self._reweigh()

    def mean(self, app_id: str, now_s: float) -> float:
        """N_avg of an active app. Raises KeyError for any other."""
        return self._at(now_s, {app_id: self._tenants[app_id]}).of(app_id)

    def at(self, now_s: float) -> Contentions:
        """N_avg of every app that is active now."""
        return self._at(now_s, self._tenants)

    def _at(self, now_s: float, tenants: Mapping[str, Tenant]) -> Contentions:
        if now_s != self._at_s:
            self._advance(now_s)
        # `dict()` would copy one by one the entries of a dictionary from which entries were deleted.
        since = self._since.copy() if tenants is self._tenants else {app_id: self._since[app_id] for app_id in tenants}
        weights = {}
        for app_id, tenant in tenants.items() if self._excess_app_s or self._weights else ():
            if tenant in self._excess_app_s:
                entered_s, before_app_s = since[app_id]
                since[app_id] = (entered_s, before_app_s - self._excess_app_s[tenant])
            if tenant in self._weights:
                weights[app_id] = self._weights[tenant]
        return Contentions(
            now_s=now_s, active=self.active, integral_app_s=self._integral_app_s, since=since, weights=weights
        )

    def _reweigh(self) -> None:
        """Find the weights of the tenants whose apps differ from the mean app; of most runs there are none."""
        weights = self._queues.app_weights(self._counts) if self._counts else {}
        mean = sum_in_order(self._counts[tenant] * weight for tenant, weight in weights.items()) / max(1, self.active)
        self._weights = {tenant: weight / mean for tenant, weight in weights.items() if weight != mean}

    def _advance(self, now_s: float) -> None:
        if now_s < self._at_s:
            raise InvariantError("time ran backwards", value=(self._at_s, now_s))
        if self._since:
            passed_s, active = now_s - self._at_s, self.active
            self._integral_app_s += active * passed_s
            for tenant, weight in self._weights.items():
                excess_app_s = (active / weight - active) * passed_s
                self._excess_app_s[tenant] = self._excess_app_s.get(tenant, 0.0) + excess_app_s
        self._at_s = now_s
