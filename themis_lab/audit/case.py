"""A market under audit: the mechanism, and its answers, each computed once."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import TypeVar, cast

from msgspec import field

from rm_plugin.arbiter.auction import AuctionOutcome, run_auction
from rm_plugin.arbiter.payments import kept_share
from rm_plugin.arbiter.seeds import child_seed
from rm_plugin.policies.port import Policy
from rm_plugin.policies.themis import ThemisPolicy
from rm_plugin.solvers.port import Solution, WinnerDetermination
from themis.bids import Bid, Market
from themis.values import Value

Made = TypeVar("Made")

SAME = 1e-9
"""Two numbers are equal if they differ by at most this, relative to the larger of 1 and their magnitude."""


def same(one: float, other: float) -> bool:
    """Whether two numbers differ by at most `SAME`."""
    return abs(one - other) <= SAME * max(1.0, abs(one), abs(other))


class Mechanism(Value, frozen=True, kw_only=True):
    """The audited mechanism: a solver (a new one for each call), the auction with its payments, and the policy."""

    make_solver: Callable[[], WinnerDetermination]
    auction: Callable[[Market, WinnerDetermination, float], AuctionOutcome] = run_auction
    share: Callable[[Market, Solution, Solution, str], float] = kept_share
    policy: Policy = field(default_factory=ThemisPolicy)
    time_limit_s: float = 120.0


class Case:
    """One market with the mechanism's answers. Its seed determines all random choices.

    `unreferenced` counts the problems that `optimality` could not compare because its reference ran out of time.
    """

    def __init__(self, market: Market, mechanism: Mechanism, *, seed: int = 0) -> None:
        self.market = market
        self.mechanism = mechanism
        self.seed = seed
        self.solver = mechanism.make_solver()
        self.unreferenced = 0
        self._made: dict[str, object] = {}

    def rng(self, name: str) -> random.Random:
        """A random source for one use, so that adding a property does not change the random choices of another."""
        return random.Random(child_seed(self.seed, "audit", name))

    def once(self, name: str, make: Callable[[], Made]) -> Made:
        """Return `make()`, computed once per name. Properties and measures share expensive results this way."""
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
        """Whether every problem of the auction was solved to optimality."""
        return self.outcome.optimal

    @cached_property
    def values(self) -> Mapping[str, float]:
        """The value of each bidder's row, or of its empty bundle if it wins nothing, before payments."""
        return {app_id: value_won(bid, self.outcome) for app_id, bid in self.bids.items()}

    def auction(self, market: Market) -> AuctionOutcome:
        """Hold the auction of another market, with a new solver."""
        return self.mechanism.auction(market, self.mechanism.make_solver(), self.mechanism.time_limit_s)

    def solve(self, market: Market) -> Solution:
        """Solve one winner determination. The solver is reused, so that it can reuse what the markets share."""
        return self.solver.solve(market, self.mechanism.time_limit_s)


def value_won(bid: Bid, outcome: AuctionOutcome | Solution) -> float:
    """The value of the row that a bidder wins, or of its empty bundle."""
    win = outcome.wins.get(bid.app_id)
    return bid.empty_value if win is None else bid.rows[win.row].value
