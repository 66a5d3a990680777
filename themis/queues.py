"""Queues and users: who shares the cluster, by which weights, and within which limits. Pure values.

Queues form a tree, as in YARN and Kueue. Apps name a leaf of it. GPUs are shared by weight first among the children of
each queue, then among the users of a leaf, and then equally among the active apps of a user. So a user who splits an
app into four has four apps of a quarter of the weight each.

Example: the queue `vision` has weight 2, the queue `speech` weight 1. In `vision` anna has two active apps and bob one,
in `speech` carl has one. The queues share 2 : 1, so each of the three users has a third of the cluster. Each of anna's
apps has a sixth.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import ClassVar

from msgspec import field

from themis.errors import NotAllowedError, UnknownNameError
from themis.sums import sum_in_order
from themis.values import Value, cached_property

ROOT = "root"
"""The queue above all others."""

Tenant = tuple[str, str]
"""A leaf queue and a user. The user is empty for apps without one, each of which counts as a user of its own."""

NO_TENANT: Tenant = (ROOT, "")


class AppOwner(Value, frozen=True, kw_only=True):
    """Whose app it is: its user and its queue, and its priority among the apps of this user."""

    user: str = ""
    queue: str = "default"
    priority: int = 0

    OMITTED_AT_DEFAULT: ClassVar[Mapping[str, object]] = {"priority": 0}


NO_OWNER = AppOwner()
"""The owner of an app without a user."""


class Limits(Value, frozen=True, kw_only=True):
    """What a queue, or a user within it, may have at most. None is no limit.

    Attributes:
        max_gpus: GPUs held at a time.
        max_active_apps: Apps that run, or are about to. Further apps wait.
        submissions_per_minute: Submissions at once, and as many in each minute after that. Further ones are refused.
    """

    max_gpus: int | None = None
    max_active_apps: int | None = None
    submissions_per_minute: int | None = None


NO_LIMITS = Limits()


class QueueUser(Value, frozen=True, kw_only=True):
    """A user within a queue and the queues below it."""

    weight: float = 1.0
    limits: Limits = NO_LIMITS


class Queue(Value, frozen=True, kw_only=True):
    """A queue.

    Attributes:
        name: Its name, which no other queue has.
        parent: The name of the queue above it; empty for the root.
        weight: Its weight among the queues with the same parent.
        guaranteed_gpus: GPUs up to which it is served before queues that have their guarantee.
        limits: Those of all its apps together.
        submitters: The users who may submit; empty: all.
        admins: Users who control its apps and those of the queues below.
        users: Users with a weight or limits of their own.
        each_user: The limits of every other user.
    """

    name: str
    parent: str = ""
    weight: float = 1.0
    guaranteed_gpus: int = 0
    limits: Limits = NO_LIMITS
    submitters: tuple[str, ...] = ()
    admins: tuple[str, ...] = ()
    users: Mapping[str, QueueUser] = field(default_factory=dict)
    each_user: Limits = NO_LIMITS

    def limits_of(self, user: str) -> Limits:
        """The limits of a user within this queue."""
        return self.users[user].limits if user in self.users else self.each_user


class Queues(Value, frozen=True, dict=True, kw_only=True):
    """The tree of queues, by name. Parents stand before their children, the root first."""

    queues: Mapping[str, Queue] = field(default_factory=lambda: {ROOT: Queue(name=ROOT)})

    @cached_property
    def leaves(self) -> tuple[str, ...]:
        """The names of the queues without queues below them."""
        parents = {queue.parent for queue in self.queues.values()}
        return tuple(name for name in self.queues if name not in parents)

    def tenant(self, owner: AppOwner) -> Tenant:
        """The tenant of an app. An app of a queue that is no leaf (any more) is directly in the root."""
        return (owner.queue if owner.queue in self.leaves else ROOT), owner.user

    def above(self, name: str) -> Iterator[Queue]:
        """A queue and those above it, up to the root."""
        while name:
            queue = self.queues[name]
            yield queue
            name = queue.parent

    @cached_property
    def administered(self) -> Mapping[str, frozenset[str]]:
        """The leaves whose apps a user controls, for each user that a queue names in `admins`.

        The root is among them if the user administers all: an app of a queue that is no leaf is directly in the root.
        """
        found: dict[str, set[str]] = {}
        for name in {*self.leaves, ROOT}:
            for admin in (admin for queue in self.above(name) for admin in queue.admins):
                found.setdefault(admin, set()).add(name)
        return {admin: frozenset(names) for admin, names in found.items()}

    def check_submitter(self, owner: AppOwner) -> None:
        """Raise NotAllowedError unless the owner may submit apps to this queue, UnknownNameError unless it is a leaf.

        If the root is the only queue, every name of a queue is accepted.
        """
        if self.leaves != (ROOT,) and owner.queue not in self.leaves:
            raise UnknownNameError("queue", owner.queue, self.leaves)
        for queue in self.above(self.tenant(owner)[0]):
            if queue.submitters and owner.user not in queue.submitters:
                remedy = f"ask an administrator for the queue {queue.name} (`submit` in the file of queues)"
                raise NotAllowedError(f"user {owner.user} may not submit to queue {owner.queue}", remedy=remedy)

    def user_weight(self, tenant: Tenant) -> float:
        """The weight of a user within a leaf: that of the nearest queue which names the user, else 1."""
        leaf, user = tenant
        return self._named[leaf].get(user, 1.0)

    @cached_property
    def _named(self) -> Mapping[str, Mapping[str, float]]:
        """The weights of the users that a queue or one above it names, by queue."""
        named: dict[str, dict[str, float]] = {"": {}}
        for queue in self.queues.values():
            own = {user: known.weight for user, known in queue.users.items()}
            named[queue.name] = named[queue.parent] | own
        return named

    def app_weights(self, active: Mapping[Tenant, float]) -> dict[Tenant, float]:
        """The weight of one active app of each tenant, relative to those of the others.

        A queue or user without active apps has no part: the others share it. If there is one tenant only, or each
        has one app and weight 1 in one queue, all weights are exactly 1.

        Args:
            active: The number of active apps of each tenant.
        """
        if len(active) == 1:
            return dict.fromkeys(active, 1.0)
        weights = {tenant: self.user_weight(tenant) if tenant[1] else float(count) for tenant, count in active.items()}
        # A queue's children by their part of its weight: queues with active apps, and tenants.
        children: dict[str, dict[str | Tenant, float]] = {}
        for tenant, weight in weights.items():
            if tenant[0] not in children:
                for queue in self.above(tenant[0]):
                    if queue.parent:
                        children.setdefault(queue.parent, {})[queue.name] = queue.weight
            children.setdefault(tenant[0], {})[tenant] = weight
        parts: dict[str | Tenant, float] = {ROOT: sum_in_order(weights.values())}
        for name in self.queues:
            if name in children:
                total = sum_in_order(children[name].values())
                parts |= {child: parts[name] * weight / total for child, weight in children[name].items()}
        return {tenant: parts[tenant] / count for tenant, count in active.items()}


ONE_QUEUE = Queues()
"""The tree without a file: the root alone, where every user has weight 1 and no limit."""
