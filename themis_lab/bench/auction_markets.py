# Seeded markets for the auction, bid on by real agents: `auction_market` (rows over gangs), `explicit_market` (tables).
# The same arguments give the same market to the byte. Sizes are in sizes.py, distributions in apps.py and holdings.py.
"""Random markets for the auction benchmark: the input of a round, and the agents' bids on it."""

from __future__ import annotations

from functools import lru_cache
from itertools import count
from random import Random

from am.agent.bids.bidding import make_bid
from am.agent.model.views import AppView, ClusterView
from am.app_view import make_cluster_view
from rm_plugin.arbiter.seeds import child_seed
from themis.bids import Bid, FreeMachine, Market, Offer
from themis.choices import BundleRule
from themis.cluster import Allocation
from themis.values import Value
from themis_lab.bench.apps import ELASTIC_SHARE, GangMix, draw_app
from themis_lab.bench.explicit_tables import explicit_bid
from themis_lab.bench.holdings import ClusterState, Holdings, draw_holdings, nothing_held
from themis_lab.bench.sizes import MarketSize, cluster_of

APPS_A_BIDDER = 5
"""Active apps per bidder: with the fairness knob f at 0.8 the worst fifth of the apps bids."""

MIN_CONTENTION = 1.2
"""Bidders together request at least this factor times the offered GPUs; apps that request less are replaced."""

_LEASE_S = 600.0


class Bidding(Value, frozen=True, kw_only=True):
    """The input of one agent's bid."""

    app: AppView
    offer: Offer
    cluster_view: ClusterView

    def bid(self) -> Bid:
        """The agent's bid."""
        return make_bid(self.app, self.offer, self.cluster_view)


class RoundScene(Value, frozen=True, kw_only=True):
    """A round before the bids: machines with the offered GPUs, and the input of each bidder."""

    machines: tuple[FreeMachine, ...]
    bidders: tuple[Bidding, ...]


def auction_market(
    size: MarketSize,
    seed: int,
    *,
    gangs: GangMix = GangMix.POWERS,
    cluster: ClusterState = ClusterState.EMPTY,
    elastic_share: float = ELASTIC_SHARE,
) -> Market:
    """Return a market with agents' bids for random apps (docs/reference/benchmarks.md, Markets).

    Args:
        size: One of `themis_lab.bench.sizes.SIZES`.
        seed: Together with the other arguments it decides everything.
        gangs: Sizes of the gangs.
        cluster: Whether all GPUs are free or gangs are held.
        elastic_share: Share of the apps whose jobs are elastic.
    """
    scene = round_scene(size, seed, gangs=gangs, cluster=cluster, elastic_share=elastic_share)
    return Market(machines=scene.machines, bids=tuple(bidding.bid() for bidding in scene.bidders))


def explicit_market(
    size: MarketSize, seed: int, *, gangs: GangMix = GangMix.POWERS, cluster: ClusterState = ClusterState.EMPTY
) -> Market:
    """Return a market of the same apps with rows that name GPUs by machine, in tables of geometric sizes.

    All held gangs are kept: a table of rows cannot express renewal in place.
    """
    scene = round_scene(size, seed, gangs=gangs, cluster=cluster, renewals=False)
    bids = (
        explicit_bid(each.app, each.offer, each.cluster_view, Random(child_seed(seed, "table", each.app.app_id)))
        for each in scene.bidders
    )
    return Market(machines=scene.machines, bids=tuple(bids))


def round_scene(
    size: MarketSize,
    seed: int,
    *,
    gangs: GangMix = GangMix.POWERS,
    cluster: ClusterState = ClusterState.EMPTY,
    elastic_share: float = ELASTIC_SHARE,
    renewals: bool = True,
) -> RoundScene:
    """Return the state before a round. Bidders together request at least `MIN_CONTENTION` times the offered GPUs."""
    cluster_view = _cluster_view(size)
    for attempt in count():
        rng = Random(child_seed(seed, "market", str(size.gpus), gangs, cluster, str(attempt)))
        contentions = [cluster_view.active_apps * rng.uniform(0.7, 1.1) for _ in range(size.bidders)]
        apps = [
            draw_app(f"app-{number:04d}", rng, gangs, cluster_view, contention, elastic_share=elastic_share)
            for number, contention in enumerate(contentions)
        ]
        holdings = _draw_state(apps, size, gangs, cluster, rng, renewals=renewals)
        free_gpus = sum(machine.free for machine in holdings.machines)
        if sum(map(_asked_gpus, holdings.apps)) >= MIN_CONTENTION * free_gpus > 0:
            return _scene(holdings, cluster_view)
    raise AssertionError("attempts do not end")


def _draw_state(
    apps: list[AppView], size: MarketSize, gangs: GangMix, state: ClusterState, rng: Random, *, renewals: bool
) -> Holdings:
    if state is ClusterState.EMPTY:
        return nothing_held(apps, cluster_of(size))
    return draw_holdings(apps, cluster_of(size), gangs, _cluster_view(size).share_gpus, rng, renewals=renewals)


@lru_cache
def _cluster_view(size: MarketSize) -> ClusterView:
    """The bidders' common view of the cluster. Its table of levels takes seconds to make for 10,000 GPUs."""
    active = APPS_A_BIDDER * size.bidders
    return make_cluster_view(cluster_of(size), active_apps=active, lease_s=_LEASE_S, rule=BundleRule.CONTINUATION)


def _scene(holdings: Holdings, cluster_view: ClusterView) -> RoundScene:
    free = Allocation.of({machine.machine_id: machine.free for machine in holdings.machines})
    slots = {machine.machine_id: machine.free_slots for machine in holdings.machines if machine.free}
    bidders = []
    for app in holdings.apps:
        offer = Offer(
            round_id=1,
            now_s=0.0,
            deadline_s=1.0,
            lease_s=_LEASE_S,
            free=free,
            slots=slots,
            contention=app.contention,
            active_apps=cluster_view.active_apps,
        )
        bidders.append(Bidding(app=app, offer=offer, cluster_view=cluster_view))
    return RoundScene(machines=holdings.machines, bidders=tuple(bidders))


def _asked_gpus(app: AppView) -> int:
    goes_on = sum(gang.gpus.gpus - gang.renewable_gpus.gpus for gang in app.held)
    return sum(job.shape.demand_max_gpus for job in app.jobs) - goes_on
