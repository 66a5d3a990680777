"""A user is to every policy as one app: apps are ranked by a sum over their user first, then by their own.

So to split an app into several changes nothing. A user of weight 2 counts as if the sum were half as much. If all apps
are of one user, or have a user each, the order is that of the apps' own amounts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from rm_plugin.arbiter.round_values import AppStanding, RoundSnapshot
from themis.queues import Tenant

UserKey = Tenant | str
"""A user within a leaf of the queues; the app's id if it has no user."""

Rank = tuple[float, int, float, str]


def user_of(snapshot: RoundSnapshot, app: AppStanding) -> UserKey:
    """The user whom an app counts for."""
    tenant = snapshot.settings.queues.tenant(app.owner)
    return tenant if tenant[1] else app.app_id


def users_of(snapshot: RoundSnapshot) -> dict[str, UserKey]:
    """The user of each active app."""
    return {app.app_id: user_of(snapshot, app) for app in snapshot.apps}


def user_weights(snapshot: RoundSnapshot, users: Mapping[str, UserKey]) -> dict[UserKey, float]:
    """The weight of each user, that of queues included: the sum over the user's active apps."""
    tenants = {app.app_id: snapshot.settings.queues.tenant(app.owner) for app in snapshot.apps}
    weight_of = snapshot.settings.queues.app_weights(Counter(tenants.values()))
    weights: dict[UserKey, float] = {}
    for app_id, user in users.items():
        weights[user] = weights.get(user, 0.0) + weight_of[tenants[app_id]]
    return weights


def ranks(
    snapshot: RoundSnapshot, amounts: Mapping[str, float], before: Mapping[Tenant, float] | None = None
) -> dict[str, Rank]:
    """Sort keys of apps: the sum of their user's amounts over the user's weight, then the app's rank (`app_rank`).

    Args:
        snapshot: The round.
        amounts: What each app counts by, for example its GPU time so far. Apps that it lacks have no rank.
        before: More of each user, for example of apps that ended.
    """
    users = users_of(snapshot)
    weights = user_weights(snapshot, users)
    totals: dict[UserKey, float] = dict((before or {}).items())
    for app_id, amount in amounts.items():
        totals[users[app_id]] = totals.get(users[app_id], 0.0) + amount
    return {
        app_id: (totals[users[app_id]] / weights[users[app_id]], *app_rank(snapshot, app_id, amount))
        for app_id, amount in amounts.items()
    }


def app_rank(snapshot: RoundSnapshot, app_id: str, amount: float) -> tuple[int, float, str]:
    """The sort key of an app among those of its user: the highest priority first, then the least amount, then ids."""
    return (-snapshot.standing(app_id).owner.priority, amount, app_id)


def rho_as_one_app(snapshot: RoundSnapshot) -> dict[str, float]:
    """The rho of each app that answered, as if the apps of its user were one.

    N_avg of an app counts the apps of its user (`rm_plugin.arbiter.contention`). That is right for apps that can use
    the whole cluster. But an app whose demand is small has the same t_ideal / N whether it is whole or one of four
    parts, so that the parts of an app that was split would have a quarter of its rho. The factor corrects for that.

    Example: 16 GPUs, and a user with four apps that can use 4 GPUs each. Together they can use 16 GPUs as one app
    could, so their rho counts four times. If each could use 16 GPUs, it would count once.
    """
    users, gpus = users_of(snapshot), snapshot.cluster.gpus
    capped: dict[UserKey, list[int]] = {}
    for app in snapshot.apps:
        report = snapshot.reports.get(app.app_id)
        unmet = sum(demand.max_gpus for demand in report.demands) if report is not None else 0
        capped.setdefault(users[app.app_id], []).append(min(gpus, unmet + app.kept.gpus))
    factors = {
        user: len(demands) * min(gpus, sum(demands)) / sum(demands) if sum(demands) else 1.0
        for user, demands in capped.items()
    }
    return {app_id: report.rho * factors[users[app_id]] for app_id, report in snapshot.answered.items()}
