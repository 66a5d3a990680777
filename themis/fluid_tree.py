"""The tree of queues, users and their apps on the fluid fair cluster: which app ends or turns first, in O(log n).

The apps of a branch share its weight. So each branch has a *virtual time* of its own, in which its apps are served by
their own weights. Its pace, relative to that of the branch above, follows from the two weights: it changes only if apps
within the branch come or go. A branch knows the first end of its apps in its own virtual time, and converts it to that
of the branch above; likewise the level at which its first app turns. So a change of an app concerns the branches above
it only, not other users.

Within a branch a tournament tree compares the children. What a change makes outdated is computed when it is needed, so
many changes at one moment cost little more than one.
"""

from __future__ import annotations

import math
from typing import Generic, Protocol, TypeVar

from themis.values import Value


class Total(Value, frozen=True):
    """Sums over some apps, and which of their ends and turns comes first.

    Attributes:
        weight: The weight of all apps.
        shared_weight: That of the shared apps.
        full_gpus: GPUs of the full apps.
        full_ends_s: When the first full app ends.
        shared_ends: The virtual time at which the first shared app ends.
        shares_below: The level below which some full app is shared.
        fills_at: The level from which on some shared app is full.
    """

    weight: float = 0.0
    shared_weight: float = 0.0
    full_gpus: float = 0.0
    full_ends_s: float = math.inf
    shared_ends: float = math.inf
    shares_below: float = -math.inf
    fills_at: float = math.inf

    def __add__(self, other: Total) -> Total:
        # `min` would take three times as long.
        return Total(
            self.weight + other.weight,
            self.shared_weight + other.shared_weight,
            self.full_gpus + other.full_gpus,
            self.full_ends_s if self.full_ends_s <= other.full_ends_s else other.full_ends_s,
            self.shared_ends if self.shared_ends <= other.shared_ends else other.shared_ends,
            self.shares_below if self.shares_below >= other.shares_below else other.shares_below,
            self.fills_at if self.fills_at <= other.fills_at else other.fills_at,
        )


NOTHING = Total()


class Child(Protocol):
    """A branch, or an app. `place` is its number among the children of the branch above, which sets it."""

    place: int | None


App = TypeVar("App", bound=Child)


class Branch(Generic[App]):
    """The root, a queue, or a user of a queue.

    While the virtual time of its parent advances by 1, its own advances by its pace. `contention_s` is the integral
    over time of a ratio: the weight of all apps of the cluster over the weight that its own apps have of it. `virtual`
    and `contention_s` are those of the last change of the pace; `clocks` returns those of now.

    Args:
        parent: The branch above; None for the root, whose clocks the caller advances.
        weight: Its weight among the children of its parent; None if that is the weight of its apps.
    """

    def __init__(self, parent: Branch[App] | None = None, weight: float | None = None) -> None:
        self.place: int | None = None
        self.virtual = 0.0
        self.contention_s = 0.0
        self._parent = parent
        self._weight = weight
        self._pace = 1.0
        self._parent_clocks = (0.0, 0.0)
        # The total of node k is that of the nodes 2 k and 2 k + 1, the last level are the children. None is outdated.
        self._totals: list[Total | None] = [NOTHING, NOTHING]
        self._children: list[App | Branch[App] | None] = [None]
        self._free_places = [0]

    @property
    def total(self) -> Total:
        """The total of all its apps."""
        return self._total(1)

    @property
    def contention(self) -> float:
        """The weight of all apps over that of its own, now."""
        return self.total.weight if self._parent is None else self._parent.contention / self._pace

    def clocks(self) -> tuple[float, float]:
        """Its virtual time and its contention in seconds, now."""
        if self._parent is None:
            return self.virtual, self.contention_s
        (virtual, contention_s), (virtual_then, contention_then_s) = self._parent.clocks(), self._parent_clocks
        return (
            self.virtual + (virtual - virtual_then) * self._pace,
            self.contention_s + (contention_s - contention_then_s) / self._pace,
        )

    def set(self, child: App | Branch[App], total: Total | None) -> None:
        """A child has this total now: `NOTHING` if it has left, None if it is a branch that will compute it."""
        if child.place is None:
            if not self._free_places:
                self._double()
            child.place = self._free_places.pop()
            self._children[child.place] = child
        node, parent_knows = len(self._children) + child.place, self._totals[1] is None
        if total is NOTHING:
            self._children[child.place] = None
            self._free_places.append(child.place)
            child.place = None
        self._totals[node] = total
        while node > 1:
            node //= 2
            self._totals[node] = None
        if self._parent is not None and not parent_knows:
            self._parent.set(self, None)

    def first(self, kind: str) -> App:
        """The app whose value of this name is that of the total."""
        node, first = 1, getattr(self.total, kind)
        while node < len(self._children):
            node *= 2
            if getattr(self._total(node), kind) != first:
                node += 1
        child = self._children[node - len(self._children)]
        assert child is not None
        return child.first(kind) if isinstance(child, Branch) else child

    def _total(self, node: int) -> Total:
        total = self._totals[node]
        if total is None:
            if node < len(self._children):
                total = self._total(2 * node) + self._total(2 * node + 1)
            else:
                branch = self._children[node - len(self._children)]
                assert isinstance(branch, Branch)
                total = branch._outside(self)
            self._totals[node] = total
        return total

    def _outside(self, parent: Branch[App]) -> Total:
        """Its total in the virtual time of its parent, with the pace that follows from its weight."""
        total = self.total
        if not total.weight:
            return NOTHING
        weight = total.weight if self._weight is None else self._weight
        pace = weight / total.weight
        if pace != self._pace:
            self.virtual, self.contention_s = self.clocks()
            self._parent_clocks, self._pace = parent.clocks(), pace
        return Total(
            weight,
            total.shared_weight * pace,
            total.full_gpus,
            total.full_ends_s,
            self._parent_clocks[0] + (total.shared_ends - self.virtual) / pace,
            total.shares_below / pace,
            total.fills_at / pace,
        )

    def _double(self) -> None:
        """Make places for as many children again."""
        places = len(self._children)
        self._free_places = list(range(places, 2 * places))
        self._children += [None] * places
        # The change that needs a place outdates the total of all, and that of the parent.
        outdated: list[Total | None] = [None] * (2 * places - 2)
        self._totals = [*self._totals[:2], *outdated, *self._totals[places:], *[NOTHING] * places]
