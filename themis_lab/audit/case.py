"""A market under audit: the mechanism that is looked at, and what it answers, computed once."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeVar, cast

from rm_plugin.arbiter.auction import AuctionOutcome, run_auction
from rm_plugin.arbiter.payments import kept_share
from rm_plugin.arbiter.seeds import child_seed
from rm_plugin.policies.port import Policy
from rm_plugin.policies.themis import ThemisPolicy
from rm_plugin.solvers.port import Solution, WinnerDetermination
from themis.bids import Bid, Market

Made = TypeVar("Made")

SAME = 1e-9
"""Two numbers that differ by no more, relative to the larger of 1 and their size, count as the same."""


def same(one: float, other: float) -> bool:
    """True when two numbers differ by no more than `SAME`."""
    return abs(one - other) <= SAME * max(1.0, abs(one), abs(other))


@dataclass(frozen=True, slots=True, kw_only=True)
class Mechanism:
    """What is audited: a solver (a fresh one a call), the auction around it, its payments, and the policy."""

    make_solver: Callable[[], WinnerDetermination]
    auction: Callable[[Market, WinnerDetermination, float], AuctionOutcome] = run_auction
    share: Callable[[Market, Solution, Solution, str], float] = kept_share
    policy: Policy = field(default_factory=ThemisPolicy)
    time_limit_s: float = 120.0


class Case:
    """One market with the mechanism's answers; everything random about it comes from `seed` and a name.

    `unreferenced` counts the problems that `optimality` could not compare, since its reference ran out of time.
    """

    def __init__(self, market: Market, mechanism: Mechanism, *, seed: int = 0) -> None:
        self.market = market
        self.mechanism = mechanism
        self.seed = seed
        self.solver = mechanism.make_solver()
        self.unreferenced = 0
        self._made: dict[str, object] = {}

    def rng(self, name: str) -> random.Random:
        """Draws of their own for each use, so that one property does not move another's."""
        return random.Random(child_seed(self.seed, "audit", name))

    def once(self, name: str, make: Callable[[], Made]) -> Made:
        """What `make` makes, made once: properties and measures share what is costly."""
        if name not in self._made:
            self._made[name] = make()
        return cast("Made", self._made[name])

    @cached_property
    def bids(self) -> Mapping[str, Bid]:
        """Bid by app id, in order of app ids."""
        return {bid.app_id: bid for bid in sorted(self.market.bids, key=lambda bid: bid.app_id)}

    @cached_property
    def outcome(self) -> AuctionOutcome:
        """The auction of the market."""
        return self.auction(self.market)

    @property
    def solved(self) -> bool:
        """True when every problem of the auction was solved to optimality."""
        return self.outcome.optimal

    @cached_property
    def values(self) -> Mapping[str, float]:
        """What each bidder's row is worth to it, or its empty bundle where it wins nothing; before payments."""
        return {app_id: value_won(bid, self.outcome) for app_id, bid in self.bids.items()}

    def auction(self, market: Market) -> AuctionOutcome:
        """The auction of another market, by a fresh solver."""
        return self.mechanism.auction(market, self.mechanism.make_solver(), self.mechanism.time_limit_s)

    def solve(self, market: Market) -> Solution:
        """One winner determination; the solver is kept, so that it may remember what markets share."""
        return self.solver.solve(market, self.mechanism.time_limit_s)


def value_won(bid: Bid, outcome: AuctionOutcome | Solution) -> float:
    """The value of the row that a bidder wins, or of its empty bundle."""
    win = outcome.wins.get(bid.app_id)
    return bid.empty_value if win is None else bid.rows[win.row].value
