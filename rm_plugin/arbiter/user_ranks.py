"""A user is to every policy as one app: apps are ranked by a sum over their user first, then by their own.

So to split an app into several changes nothing. A user of weight 2 counts as if the sum were half as much. If all apps
are of one user, or have a user each, the order is that of the apps' own amounts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from themis.queues import AppOwner, Queues, Tenant

UserKey = Tenant | str
"""A user within a leaf of the queues; the app's id if it has no user."""

Rank = tuple[float, int, float, str]


class Users:
    """The users of the active apps.

    Args:
        owners: The owner of each active app.
        queues: Their weights.

    Attributes:
        of: The user of each app.
        weights: The weight of each user, that of queues included: the sum over the user's active apps.
    """

    def __init__(self, owners: Mapping[str, AppOwner], queues: Queues) -> None:
        self._owners = owners
        tenants = {app_id: queues.tenant(owner) for app_id, owner in owners.items()}
        self.of: dict[str, UserKey] = {app_id: tenant if tenant[1] else app_id for app_id, tenant in tenants.items()}
        weight_of = queues.app_weights(Counter(tenants.values()))
        self.weights: dict[UserKey, float] = {}
        for app_id, user in self.of.items():
            self.weights[user] = self.weights.get(user, 0.0) + weight_of[tenants[app_id]]

    def relative_weights(self) -> dict[str, float]:
        """The weight of each app's user over that of the user with most weight: exactly 1 if all weights are equal."""
        largest = max(self.weights.values(), default=1.0)
        # The sum of ten apps of weight 0.1 is a little less than 1.
        return {app_id: round(self.weights[user] / largest, 9) for app_id, user in self.of.items()}

    def totals(self, amounts: Mapping[str, float], before: Mapping[Tenant, float] | None = None) -> dict[str, float]:
        """The sum of the amounts of each app's user, over the weight of that user. Arguments as for `ranks`."""
        sums: dict[UserKey, float] = dict((before or {}).items())
        for app_id, amount in amounts.items():
            sums[self.of[app_id]] = sums.get(self.of[app_id], 0.0) + amount
        return {app_id: sums[self.of[app_id]] / self.weights[self.of[app_id]] for app_id in amounts}

    def ranks(self, amounts: Mapping[str, float], before: Mapping[Tenant, float] | None = None) -> dict[str, Rank]:
        """Sort keys of apps: the sum of their user's amounts over the user's weight, then the app's rank (`app_rank`).

        Args:
            amounts: What each app counts by, for example its GPU time so far. Apps that it lacks have no rank.
            before: More of each user, for example of apps that ended.
        """
        totals = self.totals(amounts, before)
        return {app_id: (totals[app_id], *self.app_rank(app_id, amount)) for app_id, amount in amounts.items()}

    def app_rank(self, app_id: str, amount: float) -> tuple[int, float, str]:
        """The sort key of an app among those of its user: highest priority, then least amount, then id."""
        return (-self._owners[app_id].priority, amount, app_id)
