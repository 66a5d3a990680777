"""The active apps of a run: what they answer the arbiter, and which of them changed since they last answered.

Honest apps are evaluated together by the production agent (`am.agent`). The cohort only remembers the outlook of an app
for as long as nothing happens to it: while it waits without GPUs, and while it is satisfied, that is, holds all that
its jobs can use and none of it is renewable. Apps that lie or err are asked one by one in every round, since their
answers do not follow from their state.

Example: 100 honest apps, of which 60 wait without GPUs and 30 are satisfied, and nothing happens to these 90. A round
of themis computes 10 new outlooks. An app that lies is asked by itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from am.agent.bids.bidding import BidMemory, make_bids
from am.agent.bids.reports import make_reports
from am.agent.model.outlook import Outlook
from am.agent.model.views import AppView, ClusterView
from rm_plugin.arbiter.round_values import RoundSnapshot
from themis.bids import AppReport, Bid, RhoOf
from themis.leases import renewable_until_s
from themis_lab.simulator.agents import Agent, HonestAgent
from themis_lab.simulator.app import SimApp

Floats = NDArray[np.float64]

_EVERY_APP = RhoOf.EVERY_APP


class Cohort:
    """Collects reports and bids of the active apps.

    Example: of 396 waiting apps one got GPUs since the last round. `reports` computes one new outlook, and keeps 395.
    Then it evaluates the rho of all 396 in one batch, because the elapsed time and N_avg of every app changed.

    Args:
        apps: The active apps by id, kept up to date by the caller.
        cluster_view: The cluster; `cluster_view.active_apps` follows the rounds.
        lead_s: Leases that end within this many seconds of a round are renewable in it.
    """

    def __init__(self, apps: Mapping[str, SimApp], cluster_view: ClusterView, lead_s: float) -> None:
        self.cluster_view = cluster_view
        self._apps = apps
        self._lead_s = lead_s
        self._memory = BidMemory()
        self._submitted_at_s: dict[str, float] = {}
        # Agents of apps that lie or err.
        self._agents: dict[str, Agent] = {}
        # Outlooks of honest apps, each with the lease end (in seconds) from which on it is stale.
        self._unchanged: dict[str, tuple[Outlook, float]] = {}
        self._round_id = 0
        self._renewable_until_s = 0.0
        # Views and outlooks that hold for this round alone.
        self._views: dict[str, AppView] = {}
        self._outlooks: dict[str, Outlook] = {}

    def enter(self, app_id: str, agent: Agent) -> None:
        """Add an app that arrived."""
        self._submitted_at_s[app_id] = self._apps[app_id].submitted_at_s
        if type(agent) is not HonestAgent:
            self._agents[app_id] = agent

    def leave(self, app_id: str) -> None:
        """Remove an app that ended."""
        del self._submitted_at_s[app_id]
        self._agents.pop(app_id, None)
        self.mark_changed(app_id)

    def mark_changed(self, app_id: str) -> None:
        """Discard the outlook of an app that an event changed."""
        self._unchanged.pop(app_id, None)
        self._outlooks.pop(app_id, None)

    def set_cluster_gpus(self, cluster_gpus: int) -> None:
        """Set the number of GPUs of the available machines."""
        self.cluster_view = replace(self.cluster_view, cluster_gpus=cluster_gpus)

    def reports(self, snapshot: RoundSnapshot, app_ids: Iterable[str], rho_of: RhoOf) -> dict[str, AppReport]:
        """Return the reports of some apps for a round that begins with this snapshot."""
        self._begin(snapshot)
        honest, others = self._honest_and_others(app_ids)
        outlooks = [self._outlook(snapshot, app_id, rho_of) for app_id in honest]
        moment = self._moment(snapshot, honest)
        reports = make_reports(outlooks, *moment, self.cluster_view, snapshot.round_id, rho_of)
        answers = dict(zip(honest, reports, strict=True))
        for app_id in others:
            view = self._view(snapshot, app_id)
            answers[app_id] = self._agents[app_id].report(view, self.cluster_view, snapshot.round_id, rho_of)
        return answers

    def bids(self, snapshot: RoundSnapshot, app_ids: Iterable[str]) -> dict[str, Bid]:
        """Return the bids of some apps on the offer of this round."""
        self._begin(snapshot)
        honest, others = self._honest_and_others(app_ids)
        outlooks = [self._outlook(snapshot, app_id, _EVERY_APP) for app_id in honest]
        offer = snapshot.common_offer(deadline_s=snapshot.now_s)
        bids = make_bids(outlooks, *self._moment(snapshot, honest), offer, self.cluster_view, self._memory)
        answers = dict(zip(honest, bids, strict=True))
        for app_id in others:
            view, own_offer = self._view(snapshot, app_id), snapshot.offer_to(app_id, deadline_s=snapshot.now_s)
            answers[app_id] = self._agents[app_id].bid(view, own_offer, self.cluster_view)
        return answers

    def has_single_job(self, app_id: str) -> bool:
        """Whether the app has one job and no later phases; an app whose agent lies or errs does not count."""
        return app_id not in self._agents and self._apps[app_id].has_single_job

    def _honest_and_others(self, app_ids: Iterable[str]) -> tuple[list[str], list[str]]:
        agents = self._agents
        if not agents:
            return list(app_ids), []
        asked = list(app_ids)
        return [app_id for app_id in asked if app_id not in agents], [app_id for app_id in asked if app_id in agents]

    def _begin(self, snapshot: RoundSnapshot) -> None:
        """Note what is the same for all apps throughout a round."""
        if self._round_id != snapshot.round_id:
            self._round_id = snapshot.round_id
            self._renewable_until_s = renewable_until_s(snapshot.now_s, self._lead_s)
            self.cluster_view = replace(self.cluster_view, active_apps=max(1, len(snapshot.apps)))
            self._views.clear()
            self._outlooks.clear()

    def _outlook(self, snapshot: RoundSnapshot, app_id: str, rho_of: RhoOf) -> Outlook:
        """Return the outlook of an honest app in this round. An unchanged app keeps its outlook from round to round."""
        known = self._unchanged.get(app_id)
        if known is not None and self._renewable_until_s < known[1]:
            unchanged = known[0]
            if rho_of is not _EVERY_APP or not unchanged.app.held:
                return unchanged
        outlook = self._outlooks.get(app_id)
        if outlook is None:
            outlook = self._outlooks[app_id] = Outlook(self._view(snapshot, app_id), self.cluster_view)
            until_s = self._apps[app_id].unchanged_until_s(self._renewable_until_s)
            if until_s > self._renewable_until_s:
                self._unchanged[app_id] = outlook, until_s
        return outlook

    def _view(self, snapshot: RoundSnapshot, app_id: str) -> AppView:
        """The app as its agent sees it: it does not change within a round."""
        view = self._views.get(app_id)
        if view is None:
            contention = snapshot.contentions.of(app_id)
            view = self._views[app_id] = self._apps[app_id].view(snapshot.now_s, self._renewable_until_s, contention)
        return view

    def _moment(self, snapshot: RoundSnapshot, app_ids: Sequence[str]) -> tuple[Floats, Floats]:
        """Seconds since each app was submitted, and N_avg of each."""
        count = len(app_ids)
        submitted_s = np.fromiter(map(self._submitted_at_s.__getitem__, app_ids), np.float64, count)
        return snapshot.now_s - submitted_s, snapshot.contentions.of_all(app_ids)
