"""All that a simulated run goes by beside its workload."""

from __future__ import annotations

from dataclasses import dataclass, field

from rm_plugin.arbiter.core import LeasePolicy
from rm_plugin.arbiter.round_values import RoundSettings
from themis.choices import BundleRule
from themis.cluster import Cluster


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """What a job's life costs beside its iterations, in seconds.

    Attributes:
        checkpoint_s: A job that stops writes a checkpoint for so long before it gives its GPUs back.
        restore_s: A job that starts reads its checkpoint and makes its first step so long after its containers stand.
        container_s: Containers on GPUs that the app did not hold already take so long to start.
        checkpoint_every_s: A running job saves itself so often; what it did since is lost with its machine. The write
            goes on beside the training and costs nothing.
    """

    checkpoint_s: float = 5.0
    restore_s: float = 5.0
    container_s: float = 30.0
    checkpoint_every_s: float = 300.0

    @property
    def restart_s(self) -> float:
        """What moving a running job costs it."""
        return self.checkpoint_s + self.container_s + self.restore_s


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeOutage:
    """A machine that is away from `lost_at_s` until `back_at_s`."""

    machine_id: str
    lost_at_s: float
    back_at_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """A run: cluster, policy and choices.

    Attributes:
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
    auction_limit_s: float = 10.0
    validate: bool = True
    record_rounds: bool = False
