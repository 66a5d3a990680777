"""How many apps queues and users may have: which submission is refused, and which app waits until others end."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from rm_plugin.service.budget import Budget
from rm_plugin.service.entries import AppEntry
from themis.errors import InputError
from themis.queues import AppOwner, Limits, Queues


class AppQuotas:
    """Checks submissions, and says which accepted apps wait.

    An app that is over a limit of active apps waits, as under YARN and Kueue: it would run later anyway, and its user
    need not try again. A submission that is over a rate is refused: a script that submits without end must see an
    error, and each waiting app costs memory.

    Args:
        queues: Returns the queues with their limits.
    """

    def __init__(self, queues: Callable[[], Queues]) -> None:
        self._queues = queues
        self._budgets: dict[tuple[str, str, int], Budget] = {}
        self.waiting: dict[str, AppEntry] = {}
        """The apps that wait, in order of submission."""

    def check_submission(self, owner: AppOwner, now_s: float) -> None:
        """Raise InputError if the owner may not submit to this queue, or has submitted too much."""
        queues = self._queues()
        queues.check_submitter(owner)
        for what, limits, scope in _scopes(queues, owner):
            most = limits.submissions_per_minute
            if most is None:
                continue
            # Another limit after a reload begins anew.
            budget = self._budgets.setdefault((*scope, most), Budget(float(most), most / 60))
            if not budget.take(1, now_s):
                remedy = f"try again in {60 / most:.0f} s"
                raise InputError(f"{what} may submit {most} apps a minute", remedy=remedy)

    def reason(self, entry: AppEntry, active: Iterable[AppEntry]) -> str:
        """Return why an app has to wait, for users; empty if it need not.

        Args:
            entry: The app.
            active: All apps that have not ended. Those that wait do not count.
        """
        queues = self._queues()
        scopes = [each for each in _scopes(queues, entry.owner) if each[1].max_active_apps is not None]
        if not scopes:
            return ""
        others = [app.owner for app in active if app.app_id not in self.waiting and app is not entry]
        for what, limits, (queue, user) in scopes:
            within = [
                owner
                for owner in others
                if owner.user == (user or owner.user)
                and any(each.name == queue for each in queues.above(queues.tenant(owner)[0]))
            ]
            if len(within) >= (limits.max_active_apps or 0):
                return f"{what} has {len(within)} active apps, and may have {limits.max_active_apps}"
        return ""


def _scopes(queues: Queues, owner: AppOwner) -> Iterable[tuple[str, Limits, tuple[str, str]]]:
    """What limits an app's owner: in words, the limits, and the queue with the user (empty: all users)."""
    for queue in queues.above(queues.tenant(owner)[0]):
        yield f"queue {queue.name}", queue.limits, (queue.name, "")
        if owner.user:
            yield f"user {owner.user} in queue {queue.name}", queue.limits_of(owner.user), (queue.name, owner.user)
