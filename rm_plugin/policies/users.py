"""The users of a round's apps (`rm_plugin.arbiter.user_ranks`), and rho as if the apps of a user were one."""

from __future__ import annotations

from rm_plugin.arbiter.round_values import RoundSnapshot
from rm_plugin.arbiter.user_ranks import UserKey, Users


def users_of(snapshot: RoundSnapshot) -> Users:
    """The users of the active apps."""
    return Users({app.app_id: app.owner for app in snapshot.apps}, snapshot.settings.queues)


def rho_as_one_app(snapshot: RoundSnapshot) -> dict[str, float]:
    """The rho of each app that answered, as if the apps of its user were one.

    N_avg of an app counts the apps of its user (`rm_plugin.arbiter.contention`). That is right for apps that can use
    the whole cluster. But an app whose demand is small has the same t_ideal / N whether it is whole or one of four
    parts, so that the parts of an app that was split would have a quarter of its rho. The factor corrects for that.

    Example: 16 GPUs, and a user with four apps that can use 4 GPUs each. Together they can use 16 GPUs as one app
    could, so their rho counts four times. If each could use 16 GPUs, it would count once.
    """
    users, gpus = users_of(snapshot).of, snapshot.cluster.gpus
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
