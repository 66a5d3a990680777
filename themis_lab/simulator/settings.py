"""The settings of a simulated run, apart from its workload."""

from __future__ import annotations

from msgspec import field

from rm_plugin.arbiter.core import LeasePolicy
from rm_plugin.arbiter.round_values import RoundSettings
from themis.choices import BundleRule
from themis.cluster import Cluster
from themis.errors import InputError
from themis.values import Value
from themis_lab.simulator.costs import A_CENTURY_S, A_DAY_S, Costs


class NodeOutage(Value, frozen=True, kw_only=True):
    """A machine that is unavailable from `lost_at_s` until `back_at_s`."""

    machine_id: str
    lost_at_s: float
    back_at_s: float

    def __post_init__(self) -> None:
        if not 0.0 <= self.lost_at_s < self.back_at_s <= A_CENTURY_S:
            value = (self.machine_id, self.lost_at_s, self.back_at_s)
            raise InputError("an outage must begin in the run and end later, within a century", value=value)


class Settings(Value, frozen=True, kw_only=True):
    """A run: cluster, policy and choices.

    Attributes:
        auction_limit_s: Seconds on the wall for an auction: ample, since a run whose auctions end early, on a machine
            that is busy with other work, is not the same run.
        coalesce_s: A round runs this many seconds after its first reason, for all reasons that came until then.
        validate: Check every invariant after each round.
        record_rounds: Keep every round's decisions, for `--explain` and `--record`.
    """

    cluster: Cluster
    policy: str = "themis"
    seed: int = 0
    leases: LeasePolicy = field(default_factory=lambda: LeasePolicy(checkpoint_lead_s=5.0))
    rounds: RoundSettings = field(default_factory=RoundSettings)
    bundle_rule: BundleRule = BundleRule.CONTINUATION
    costs: Costs = field(default_factory=Costs)
    outages: tuple[NodeOutage, ...] = ()
    solver: str = "exact"
    auction_limit_s: float = 60.0
    coalesce_s: float = 0.0
    validate: bool = True
    record_rounds: bool = False

    def __post_init__(self) -> None:
        if not 0.0 <= self.coalesce_s <= A_DAY_S:
            raise InputError("coalesce_s must be 0 to a day, in seconds", value=self.coalesce_s)
        if not self.auction_limit_s > 0.0:
            raise InputError("auction_limit_s must be more than 0", value=self.auction_limit_s)
