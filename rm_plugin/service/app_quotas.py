"""How many apps queues and users may have: which submission is refused, and which app waits until others end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

from rm_plugin.service.budget import Budget
from rm_plugin.service.entries import AppEntry
from themis.errors import InputError
from themis.queues import AppOwner, Limits, Queues

Scope = tuple[str, str]
"""A queue, and a user within it; empty: all users."""


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
        """The apps that wait, in the order in which they began to."""
        self._admitted: dict[str, AppEntry] = {}
        # Apps by scope, so that no look at an app goes through all others.
        self._active: Counter[Scope] = Counter()
        self._waits: Counter[Scope] = Counter()
        self._counted_for: Queues | None = None
        self._changed = False

    def check_submission(self, owner: AppOwner, now_s: float) -> None:
        """Raise InputError if the owner may not submit to this queue, or has submitted too much.

        A refused submission counts nowhere: otherwise a user over its own limit could use up that of its queue.
        """
        queues = self._queues()
        queues.check_submitter(owner)
        budgets = []
        for what, limits, scope in _scopes(queues, owner):
            most = limits.submissions_per_minute
            if most is None:
                continue
            # Another limit after a reload begins anew.
            budget = self._budgets.setdefault((*scope, most), Budget(float(most), most / 60))
            budgets.append(budget)
            if not budget.has(1, now_s):
                remedy = f"try again in {60 / most:.0f} s"
                raise InputError(f"{what} may submit {most} apps a minute", remedy=remedy)
        for budget in budgets:
            budget.take(1, now_s)

    def reason(self, entry: AppEntry) -> str:
        """Return why a new or resumed app has to wait, for users; empty if it need not.

        It also waits behind others that wait within the same limit: otherwise it could take the place of one that ended
        before they can.
        """
        self._count()
        for what, limits, scope in _scopes(self._queues(), entry.owner):
            if limits.max_active_apps is not None and self._waits[scope]:
                return f"{what} has apps that wait already"
        return self._over(entry, Counter())

    def wait(self, entry: AppEntry) -> None:
        """Note that an app waits for admission."""
        self.waiting[entry.app_id] = entry
        entry.launch_wait = self._over(entry, Counter()) or "it waits for its turn within the limits of its queue"
        self._waits.update(self._scopes_of(entry))
        self._changed = True

    def enter(self, entry: AppEntry) -> None:
        """Note that an app is active."""
        self.leave(entry)
        self._admitted[entry.app_id] = entry
        self._active.update(self._scopes_of(entry))

    def leave(self, entry: AppEntry) -> None:
        """Note that an app has ended or is paused; it may be neither active nor waiting."""
        for apps, counts in ((self.waiting, self._waits), (self._admitted, self._active)):
            if apps.pop(entry.app_id, None) is not None:
                counts.subtract(self._scopes_of(entry))
                self._changed = True

    def restore(self, entries: Iterable[AppEntry]) -> None:
        """Take up the apps of a former ResourceManager, those that wait in the order in which they began to."""
        for entry in sorted(entries, key=lambda entry: entry.waits_since_s or 0.0):
            if entry.waits_since_s is None:
                self.enter(entry)
            else:
                self.wait(entry)

    def look(self) -> bool:
        """Whether an app that waits may be within all limits, because something changed since the last look."""
        self._count()
        changed, self._changed = self._changed, False
        return changed and bool(self.due())

    def due(self) -> list[AppEntry]:
        """Return the apps that wait and may be active now, in their order. Notes why the others wait."""
        self._count()
        more: Counter[Scope] = Counter()
        due = []
        for entry in self.waiting.values():
            if entry.leave_reason:
                continue
            entry.launch_wait = self._over(entry, more)
            if not entry.launch_wait:
                due.append(entry)
                more.update(self._scopes_of(entry))
        return due

    def _over(self, entry: AppEntry, more: Counter[Scope]) -> str:
        """Return which limit is reached by the active apps and by `more`; empty if none is."""
        self._count()
        for what, limits, scope in _scopes(self._queues(), entry.owner):
            active = self._active[scope] + more[scope]
            if limits.max_active_apps is not None and active >= limits.max_active_apps:
                return f"{what} has {active} active apps, and may have {limits.max_active_apps}"
        return ""

    def _count(self) -> None:
        """Count anew if the queues were reloaded."""
        queues = self._queues()
        if queues is self._counted_for:
            return
        self._counted_for, self._changed = queues, True
        self._active, self._waits = Counter(), Counter()
        for apps, counts in ((self._admitted, self._active), (self.waiting, self._waits)):
            for entry in apps.values():
                counts.update(self._scopes_of(entry))

    def _scopes_of(self, entry: AppEntry) -> list[Scope]:
        return [scope for _, _, scope in _scopes(self._queues(), entry.owner)]


def _scopes(queues: Queues, owner: AppOwner) -> Iterable[tuple[str, Limits, Scope]]:
    """What limits an app's owner: in words, the limits, and the queue with the user (empty: all users)."""
    for queue in queues.above(queues.tenant(owner)[0]):
        yield f"queue {queue.name}", queue.limits, (queue.name, "")
        if owner.user:
            yield f"user {owner.user} in queue {queue.name}", queue.limits_of(owner.user), (queue.name, owner.user)
