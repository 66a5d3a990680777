"""Apps of one job that hold all they can use: renewals alone do not change what they say as leases end."""

from __future__ import annotations

from am.agent.renewing import Renewing
from am.agent.views import Surroundings
from themis.leases import Lease
from themis_lab.simulator.app import SimApp


class Renewals:
    """Those apps among the ones that are content, from their first lease end on until something else happens to them.

    Attributes:
        up: The apps of them whose leases are up for renewal.
    """

    def __init__(self) -> None:
        self.up: dict[str, Renewing] = {}
        self._known: dict[str, Renewing] = {}
        # Ends of the leases that were renewed since.
        self._ends_s: dict[str, list[float]] = {}

    def come_up(self, app: SimApp, now_s: float, up_until_s: float, around: Surroundings) -> bool:
        """Some leases of an app that was content are up for renewal; False where it is none of those apps."""
        known = self._known.get(app.app_id)
        if known is None:
            view = app.view(now_s, up_until_s, contention=1.0)
            if not Renewing.suits(view):
                return False
            known = self._known[app.app_id] = Renewing(view, around)
        self.up[app.app_id] = known
        return True

    def hear(self, lease: Lease) -> bool:
        """A lease was renewed; False where its app was not up."""
        if lease.app_id not in self.up:
            return False
        self._ends_s.setdefault(lease.app_id, []).append(lease.expires_at_s)
        return True

    def take_renewed(self) -> dict[str, float | None]:
        """Apps of which leases were renewed, which are up no more: when all of them end now, None if not as one."""
        renewed = {}
        for app_id, ends_s in self._ends_s.items():
            as_one = len(ends_s) == self.up.pop(app_id).gpus and len(set(ends_s)) == 1
            renewed[app_id] = ends_s[0] if as_one else None
        self._ends_s.clear()
        return renewed

    def drop(self, app_id: str) -> None:
        """Something else happened to an app."""
        self._known.pop(app_id, None)
        self.up.pop(app_id, None)
        self._ends_s.pop(app_id, None)
