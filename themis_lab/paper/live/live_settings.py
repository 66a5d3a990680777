"""Settings of the live service as settings of a simulated run."""

from __future__ import annotations

from msgspec.structs import replace

from rm_plugin.arbiter.core import LeasePolicy
from themis.config.rm_settings import AuctionSettings, LeaseSettings
from themis_lab.simulator.costs import Costs
from themis_lab.simulator.settings import Settings


def as_live(base: Settings, *, auction: AuctionSettings, lease: LeaseSettings, time_scale: float) -> Settings:
    """Return settings with the choices of a live service whose replayed jobs run `time_scale` times faster.

    Costs of starting and stopping are not known there: the default costs are divided by the time scale.
    """
    return replace(
        base,
        leases=LeasePolicy(
            duration_s=lease.duration_s,
            ends=lease.ends,
            checkpoint_lead_s=lease.checkpoint_lead_s,
            grace_s=lease.grace_s,
        ),
        rounds=replace(
            base.rounds,
            f=auction.f,
            empty_bundle=auction.empty_bundle,
            rounding=auction.rounding,
            payments=auction.payments,
            bidders=auction.bidders,
            values=auction.values,
            leftovers=auction.leftovers,
        ),
        bundle_rule=auction.bundle_rule,
        solver=auction.solver,
        auction_limit_s=auction.time_limit_s,
        costs=_faster(base.costs, time_scale),
    )


def _faster(costs: Costs, time_scale: float) -> Costs:
    return Costs(
        checkpoint_s=costs.checkpoint_s / time_scale,
        restore_s=costs.restore_s / time_scale,
        container_s=costs.container_s / time_scale,
        finish_s=costs.finish_s / time_scale,
        checkpoint_every_s=costs.checkpoint_every_s / time_scale,
    )
