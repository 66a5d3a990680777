"""The GPU time of apps that have ended or are paused, by tenant. Policies count it for other apps of the tenant."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import NamedTuple

from themis.queues import AppOwner, Tenant


class EndedApp(NamedTuple):
    """An app that has ended or is paused: when it arrived, and its GPU time."""

    app_id: str
    owner: AppOwner
    arrived_at_s: float
    gpu_s: float


@dataclass(slots=True)
class _OfTenant:
    """The apps of a tenant, and their (arrival, app id) in order.

    The sum of GPU time is exact, so it does not depend on the order in which apps came and went.
    """

    apps: dict[str, EndedApp] = field(default_factory=dict)
    arrivals: list[tuple[float, str]] = field(default_factory=list)
    gpu_s: Fraction = Fraction()


class EndedApps:
    """Ended apps that arrived after the oldest active app of their tenant.

    A round asks for the sums alone, and an app that ends costs a search, although a tenant with an app that runs for
    months may have thousands of ended ones.
    """

    def __init__(self) -> None:
        self._tenants: dict[Tenant, _OfTenant] = {}

    def __iter__(self) -> Iterator[EndedApp]:
        return (app for mine in self._tenants.values() for app in mine.apps.values())

    def gpu_s(self) -> Mapping[Tenant, float]:
        """Return the GPU time of the ended apps of each tenant."""
        return {tenant: float(mine.gpu_s) for tenant, mine in self._tenants.items()}

    def add(self, tenant: Tenant, app: EndedApp, since_s: float) -> None:
        """Count an app, and drop those of the tenant that arrived before `since_s`."""
        self.discard(tenant, app.app_id)
        mine = self._tenants.setdefault(tenant, _OfTenant())
        mine.apps[app.app_id] = app
        mine.gpu_s += Fraction(app.gpu_s)
        insort(mine.arrivals, (app.arrived_at_s, app.app_id))
        for _, app_id in mine.arrivals[: bisect_left(mine.arrivals, (since_s, ""))]:
            self.discard(tenant, app_id)

    def discard(self, tenant: Tenant, app_id: str) -> None:
        """Drop an app if it is counted: it is active again."""
        mine = self._tenants.get(tenant)
        app = mine.apps.pop(app_id, None) if mine is not None else None
        if mine is None or app is None:
            return
        mine.gpu_s -= Fraction(app.gpu_s)
        del mine.arrivals[bisect_left(mine.arrivals, (app.arrived_at_s, app_id))]
        if not mine.apps:
            del self._tenants[tenant]
