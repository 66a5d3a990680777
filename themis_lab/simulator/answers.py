"""What the apps of a run answer the arbiter: reports as a round begins, and bids.

An honest app of which nothing happens need not be looked at in every round. One that waits without GPUs is asked with
all its like (`am.agent.waiting`). One that is content, holding all that its jobs can use with nothing of it up for
renewal, says only that it is there, unless somebody wants the rho of every app. As its leases end it is asked with all
its like if it has one job (`am.agent.renewing`).
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, KeysView, Mapping

from msgspec.structs import replace

from am.agent.figure_reports import Figures
from am.agent.renewing import renewing_reports
from am.agent.views import AppView, Surroundings
from am.agent.waiting import Waiting, WaitingApps
from rm_plugin.arbiter.round_values import RoundSnapshot
from themis.bids import AppReport, Bid, Offer, RhoOf
from themis.leases import SAME_TIME_S, Lease
from themis.reports import ReportGroup, Reports, Wanting
from themis_lab.simulator.agents import Agent, HonestAgent
from themis_lab.simulator.app import SimApp
from themis_lab.simulator.renewals import Renewals

_EVERY_APP = RhoOf.EVERY_APP

_FEW = 6
"""So few apps that renew are asked one after the other: arrays would cost more than they save."""


class ContentReports(ReportGroup):
    """What apps that are content say where nobody wants their rho: what they would, short of what nobody goes by then.

    Args:
        round_id: The round.
        restarts_s: What moving one of its jobs costs, in seconds, by app.
    """

    def __init__(self, round_id: int, restarts_s: dict[str, float]) -> None:
        super().__init__(round_id)
        self._restarts_s = restarts_s.copy()

    @property
    def app_ids(self) -> KeysView[str]:
        """Ids of the apps."""
        return self._restarts_s.keys()

    def wanting(self) -> Wanting:
        """None of them."""
        return []

    def worst(self, most: int) -> list[tuple[float, str]]:  # noqa: ARG002 - there are none
        """None of them."""
        return []

    def tells(self, rho_of: RhoOf) -> bool:
        """True where nobody asks who wants nothing."""
        return rho_of is not _EVERY_APP

    def _make(self, app_id: str) -> AppReport:
        return AppReport(app_id=app_id, round_id=self.round_id, restart_s=self._restarts_s[app_id])


class Answers:
    """Asks the agents of apps that enter and leave.

    Args:
        apps: The active apps by id, kept up to date by the caller.
        around: The cluster; `around.active_apps` follows the rounds.
        lead_s: Leases that end within so many seconds of a round are up for renewal.
    """

    def __init__(self, apps: Mapping[str, SimApp], around: Surroundings, lead_s: float) -> None:
        self.around = around
        self._apps = apps
        self._lead_s = lead_s
        self._agents: dict[str, Agent] = {}
        self._round_id = 0
        self._up_until_s = 0.0
        self._views: dict[str, AppView] = {}
        self._offer: Offer | None = None
        # N_avg of the apps that wait, as they are in this round.
        self._contentions: Figures | None = None
        # Apps that lie or err, which are asked in every round.
        self._apart: dict[str, None] = {}
        # Those of which something happened since it was last known whether they wait or are content.
        self._stirred: dict[str, None] = {}
        self._waiting = WaitingApps()
        self._waits: dict[str, Waiting] = {}
        # Apps that are content, with what moving one of their jobs costs, and when that may be over; the queue may
        # tell of times that hold no more.
        self._content: dict[str, float] = {}
        self._content_until_s: dict[str, float] = {}
        self._contents_end: list[tuple[float, str]] = []
        self._renewals = Renewals()

    def enter(self, app_id: str, agent: Agent) -> None:
        """An app arrived."""
        self._agents[app_id] = agent
        # What a liar says, or one that errs, is not known from what is.
        if type(agent) is not HonestAgent:
            self._apart[app_id] = None
        self.stir(app_id)

    def leave(self, app_id: str) -> None:
        """An app ended."""
        del self._agents[app_id]
        self._apart.pop(app_id, None)
        self._stirred.pop(app_id, None)
        self._unsettle(app_id)

    def stir(self, app_id: str) -> None:
        """Something happened to an active app: what it said before holds no more."""
        if app_id not in self._apart:
            self._stirred[app_id] = None

    def renewed(self, lease: Lease) -> None:
        """A lease of an active app was renewed."""
        if not self._renewals.hear(lease):
            self.stir(lease.app_id)

    def have_machines(self, cluster_gpus: int) -> None:
        """The machines that are there have so many GPUs from now on."""
        self.around = replace(self.around, cluster_gpus=cluster_gpus)

    def reports(self, snapshot: RoundSnapshot, app_ids: Iterable[str], rho_of: RhoOf) -> Reports:
        """What apps answer as a round begins on a snapshot of this moment; others may be among the answers."""
        self._look_at(snapshot)
        self._settle(snapshot)
        groups: list[ReportGroup] = []
        if self._waits:
            contentions = self._contentions_at(snapshot)
            groups.append(self._waiting.reports(snapshot.now_s, contentions, self.around, snapshot.round_id, rho_of))
        rest = [*self._stirred, *self._apart]
        if len(self._renewals.up) > _FEW:
            groups.append(self._renewing(snapshot, rho_of))
        else:
            rest += self._renewals.up
        if rho_of is _EVERY_APP:
            rest += self._content
        elif self._content:
            groups.append(ContentReports(snapshot.round_id, self._content))
        asked = set(app_ids) if rest else ()
        return Reports({app_id: self._report(snapshot, app_id, rho_of) for app_id in rest if app_id in asked}, groups)

    def report(self, snapshot: RoundSnapshot, app_id: str) -> AppReport:
        """What an app answers as such a round begins, rho included."""
        self._look_at(snapshot)
        return self._report(snapshot, app_id, _EVERY_APP)

    def bids(self, snapshot: RoundSnapshot, app_ids: Iterable[str]) -> dict[str, Bid]:
        """What apps answer to the offer of such a round that can be asked all at once: they wait and have one job."""
        self._look_at(snapshot)
        waits, stirred = self._waits, self._stirred
        still = [app_id for app_id in app_ids if app_id in waits and waits[app_id].is_alone and app_id not in stirred]
        if not still:
            return {}
        offer, contentions = self._offer_to_anybody(snapshot), self._contentions_at(snapshot)
        return self._waiting.bids(still, offer, contentions, self.around)

    def bid(self, snapshot: RoundSnapshot, app_id: str) -> Bid:
        """What an app answers to the offer of such a round."""
        self._look_at(snapshot)
        now_s, waiting = snapshot.now_s, self._waits.get(app_id)
        if waiting is None or app_id in self._stirred:
            offer = snapshot.offer_to(app_id, deadline_s=now_s)
            return self._agents[app_id].bid(self._view(snapshot, app_id), offer, self.around)
        elapsed_s, contention = now_s - self._apps[app_id].submitted_at_s, snapshot.contentions.of(app_id)
        return waiting.bid(elapsed_s, contention, self._offer_to_anybody(snapshot), self.around)

    # ---- inside ----

    def _report(self, snapshot: RoundSnapshot, app_id: str, rho_of: RhoOf) -> AppReport:
        return self._agents[app_id].report(self._view(snapshot, app_id), self.around, snapshot.round_id, rho_of)

    def _renewing(self, snapshot: RoundSnapshot, rho_of: RhoOf) -> ReportGroup:
        """The reports of all apps that are about to renew what they hold."""
        now_s, up, contentions = snapshot.now_s, self._renewals.up, snapshot.contentions
        apps = [self._apps[app_id] for app_id in up]
        return renewing_reports(
            tuple(up.values()),
            [app.jobs_at(now_s)[0] for app in apps],
            [now_s - app.submitted_at_s for app in apps],
            [contentions.of(app_id) for app_id in up],
            self.around,
            snapshot.round_id,
            rho_of,
        )

    def _view(self, snapshot: RoundSnapshot, app_id: str) -> AppView:
        """The app as its agent sees it: it does not change within a round."""
        view = self._views.get(app_id)
        if view is None:
            contention = snapshot.contentions.of(app_id)
            view = self._views[app_id] = self._apps[app_id].view(snapshot.now_s, self._up_until_s, contention)
        return view

    def _contentions_at(self, snapshot: RoundSnapshot) -> Figures:
        """N_avg of the apps that wait."""
        if self._contentions is None:
            self._contentions = snapshot.contentions.of_all(*self._waiting.notes)
        return self._contentions

    def _offer_to_anybody(self, snapshot: RoundSnapshot) -> Offer:
        if self._offer is None:
            self._offer = snapshot.offer_to_anybody(deadline_s=snapshot.now_s)
        return self._offer

    def _look_at(self, snapshot: RoundSnapshot) -> None:
        """What all apps see alike is the same throughout a round."""
        if self._round_id != snapshot.round_id:
            self._round_id = snapshot.round_id
            self._up_until_s = snapshot.now_s + self._lead_s + SAME_TIME_S
            self.around = replace(self.around, active_apps=max(1, len(snapshot.apps)))
            self._views.clear()
            self._offer = self._contentions = None

    def _settle(self, snapshot: RoundSnapshot) -> None:
        """Find out which apps wait or are content now; those that are neither are looked at again in the next round."""
        self._contentions = None
        self._renew()
        while self._contents_end and self._contents_end[0][0] <= self._up_until_s:
            end_s, app_id = heapq.heappop(self._contents_end)
            if self._content_until_s.get(app_id) == end_s and app_id not in self._stirred:
                self._come_up(snapshot.now_s, app_id)
        for app_id in list(self._stirred):
            self._unsettle(app_id)
            app = self._apps[app_id]
            waiting = app.waiting(snapshot.now_s, self.around)
            if waiting is not None:
                self._waits[app_id] = waiting
                self._waiting.put(waiting, app.submitted_at_s, snapshot.contentions.since[app_id])
            elif app.is_content(self._up_until_s):
                self._be_content(app_id, app.same_until_s(self._up_until_s))
            else:
                continue
            del self._stirred[app_id]

    def _come_up(self, now_s: float, app_id: str) -> None:
        """Leases of an app that was content end with this round."""
        if self._renewals.come_up(self._apps[app_id], now_s, self._up_until_s, self.around):
            del self._content[app_id], self._content_until_s[app_id]
        else:
            self._stirred[app_id] = None

    def _renew(self) -> None:
        """Apps that renewed all they hold, and of which nothing else happened, are content again."""
        for app_id, end_s in self._renewals.take_renewed().items():
            if end_s is None or end_s <= self._up_until_s:
                self._stirred[app_id] = None
            elif app_id not in self._stirred:
                self._be_content(app_id, end_s)

    def _be_content(self, app_id: str, until_s: float) -> None:
        self._content[app_id] = self._apps[app_id].costs.restart_s
        self._content_until_s[app_id] = until_s
        heapq.heappush(self._contents_end, (until_s, app_id))

    def _unsettle(self, app_id: str) -> None:
        if self._content.pop(app_id, None) is not None:
            del self._content_until_s[app_id]
        self._renewals.drop(app_id)
        if self._waits.pop(app_id, None) is not None:
            self._waiting.drop(app_id)
