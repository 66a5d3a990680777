"""Answers the ResourceManager's questions on behalf of the app: rho, and bids on offers."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Protocol

from msgspec.structs import replace

from am.agent.bids.bidding import BidMemory, make_bid
from am.agent.bids.reports import make_report
from am.agent.model.views import AppView, ClusterView
from themis.cluster import GpuId
from themis.wire import themis_pb2 as pb
from themis.wire.values import bid_to_message, offer_from_message, report_to_message

Planned = Callable[[], Mapping[str, tuple[GpuId, ...]]]


class ViewedApp(Protocol):
    """What the negotiator needs of an app: `am.app.App` is one."""

    cluster_view: ClusterView

    def set_contention(self, *, contention: float, active_apps: int) -> None:
        """Note the cluster's contention, from the ResourceManager."""
        ...

    def view(self, planned: Mapping[str, tuple[GpuId, ...]], round_at_s: float = ...) -> AppView:
        """The app now; see `am.app.App.view`."""
        ...


class Negotiator:
    """`planned` returns the gangs on which waiting jobs will start once other apps have given the GPUs back."""

    def __init__(self, app: ViewedApp, planned: Planned) -> None:
        self._app = app
        self._planned = planned
        self._memory = BidMemory()

    def report(self, question: pb.AskRho) -> pb.AmMessage:
        """The app's report for a round."""
        self._app.set_contention(contention=question.contention, active_apps=question.active_apps)
        view = self._app.view(self._planned(), question.now_s)
        return pb.AmMessage(rho=report_to_message(make_report(view, self._app.cluster_view, question.round_id)))

    def bid(self, message: pb.Offer) -> pb.AmMessage:
        """The app's bid on an offer, with the milliseconds that it took."""
        started_s = time.perf_counter()
        offer = offer_from_message(message)
        self._app.set_contention(contention=offer.contention, active_apps=offer.active_apps)
        view = self._app.view(self._planned(), offer.now_s)
        cluster_view = replace(self._app.cluster_view, lease_s=offer.lease_s)
        bid = make_bid(view, offer, cluster_view, self._memory)
        prepare_ms = 1e3 * (time.perf_counter() - started_s)
        return pb.AmMessage(bid=bid_to_message(bid, prepare_ms))
