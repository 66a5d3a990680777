"""Apps without GPUs: until something happens to one, time alone changes what it says.

Most apps of a busy cluster wait, and whoever plays many of them asks all of them in every round. What such an app could
use, what is left of its search and how long that takes on a number of GPUs is worked out once; its rho then follows
from the time, and that of all of them at once. What they say is what `demands` and `bidding` make of their views, to
the last bit, which tests hold it to.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np

from am.agent.bidding import bid_by
from am.agent.demands import phases_left, unmet_demands
from am.agent.fairness import Valuer, all_shared_s, all_values, cluster_time_s
from am.agent.figure_reports import FigureReports, Figures, figures_of
from am.agent.finish_time import pace_on_counts
from am.agent.kinds import Room, room_of
from am.agent.lone import Asks, asks_in, rows_worth
from am.agent.views import AppView, Surroundings
from themis.bids import Bid, Offer, RhoOf
from themis.reports import Wanting

_NO_APP = RhoOf.NO_APP

Asked = tuple[Asks, list[float]]
"""Asks, and T of each in seconds."""

_FEW = 8
"""So few apps are asked one after the other: arrays would cost more than they save."""

_MOST_ROOMS = 4
"""Rooms that each app remembers: most rounds are about a GPU or two."""


class Waiting:
    """An app that holds nothing and has jobs to run, as long as nothing but time changes.

    Args:
        app: It, at any moment of that time: when that was and how many apps there were is of no account.
        around: The cluster, whose machines stay the same.
    """

    __slots__ = (
        *("_app", "_pace", "_rooms", "app_id", "demands", "is_alone", "phases_left", "restart_s"),
        *("smallest_gpu_s", "smallest_gpus"),
    )

    def __init__(self, app: AppView, around: Surroundings) -> None:
        self._app = app
        self.app_id, self.restart_s = app.app_id, app.restart_s
        self._pace = pace_on_counts(app, around)
        self.demands = unmet_demands(app)
        self.phases_left = phases_left(app)
        # The smallest gang that any of its jobs can run on, and T on it times its GPUs.
        self.smallest_gpus = self._pace.smallest_gpus
        self.smallest_gpu_s = self._pace.time_s(app, self.smallest_gpus, around) * self.smallest_gpus
        # One job, and no other to come.
        self.is_alone = len(app.jobs) == 1 and not app.later_phases
        # What such an app may ask for in the rooms of late, with T of each.
        self._rooms: dict[Room, Asked | None] = {}

    def cluster_time_s(self, around: Surroundings) -> float:
        """t_cluster, in seconds."""
        return cluster_time_s(self._app, around)

    def time_s(self, gpus: int, around: Surroundings) -> float:
        """T on a whole number of GPUs, no fewer than the smallest gang, in seconds."""
        return self._pace.time_s(self._app, gpus, around)

    def valuer(self, elapsed_s: float, contention: float, around: Surroundings) -> Valuer:
        """What times on bundles are worth at such a moment as `bid` tells."""
        return Valuer(
            elapsed_s=elapsed_s,
            ideal_s=self.cluster_time_s(around) * contention,
            share_s=self._pace.on_count_s(self._app, around.share_gpus, around),
            lease_s=around.lease_s,
            rule=around.rule,
        )

    def bid(self, elapsed_s: float, contention: float, offer: Offer, around: Surroundings) -> Bid:
        """The app's bid `elapsed_s` seconds into its life, over which `contention` apps were active (N_avg)."""
        return bid_by(self._app, self.valuer(elapsed_s, contention, around), offer, around)

    def asked_in(self, room: Room) -> Asked | None:
        """What the app may ask for in a room, and T of each; None where it takes tables to tell."""
        known = self._rooms
        if room not in known:
            if not self.is_alone:
                return None
            if len(known) >= _MOST_ROOMS:
                known.clear()
            asks, work_s = asks_in(self._app, room), self._app.jobs[0].serial_work_s
            known[room] = None if asks is None else (asks, [ask.time_s(work_s) for ask in asks])
        return known[room]


class WaitingApps:
    """Any number of such apps of one cluster, their reports, and the bids of those that have one job."""

    _SUBMITTED, _CLUSTER_S, _SMALLEST, _SMALLEST_GPU_S, _WHOLE_S, _NOTED = range(6)

    def __init__(self) -> None:
        self._apps: list[Waiting] = []
        self._places: dict[str, int] = {}
        self._wanting: Wanting = []
        # A column an app: see the names above. Times are in seconds.
        self._figures: Figures = np.empty((7, 16))
        # Those of whom it is not noted yet what follows from the cluster, and that of which it is.
        self._new: set[str] = set()
        self._cluster_gpus = self._whole_gpus = 0

    @property
    def notes(self) -> Figures:
        """What the caller noted of each as it began to wait [2, apps]."""
        return self._figures[self._NOTED :, : len(self._apps)]

    def put(self, app: Waiting, submitted_at_s: float, notes: tuple[float, float] = (0.0, 0.0)) -> None:
        """An app waits from now on, or waits in another way than before.

        Args:
            app: The app.
            submitted_at_s: When it was submitted.
            notes: Kept with it, for the caller to work out N_avg of all apps at once from.
        """
        place = self._places.setdefault(app.app_id, len(self._apps))
        if place == len(self._apps):
            self._apps.append(app)
            self._wanting.append((app.app_id, app.demands))
        if place == self._figures.shape[1]:
            self._figures = np.concatenate((self._figures, np.empty_like(self._figures)), axis=1)
        self._apps[place], self._wanting[place] = app, (app.app_id, app.demands)
        self._figures[self._SUBMITTED, place] = submitted_at_s
        self._figures[self._NOTED :, place] = notes
        self._figures[self._SMALLEST, place] = app.smallest_gpus
        self._figures[self._SMALLEST_GPU_S, place] = app.smallest_gpu_s
        self._new.add(app.app_id)

    def drop(self, app_id: str) -> None:
        """An app waits no more; one that did not is passed over."""
        place = self._places.pop(app_id, None)
        if place is None:
            return
        self._new.discard(app_id)
        last, wants = self._apps.pop(), self._wanting.pop()
        if place < len(self._apps):
            self._apps[place], self._wanting[place], self._places[last.app_id] = last, wants, place
            self._figures[:, place] = self._figures[:, len(self._apps)]

    def reports(
        self,
        now_s: float,
        contentions: Figures,
        around: Surroundings,
        round_id: int,
        rho_of: RhoOf = RhoOf.EVERY_APP,
    ) -> FigureReports:
        """What all of them report.

        Args:
            now_s: The time, on the clock of the submissions.
            contentions: N_avg of each, in the order of `notes`.
            around: The cluster now.
            round_id: The round that asks.
            rho_of: Whose rho it asks for: all of them could use more GPUs.
        """
        untold = rho_of is _NO_APP or not self._apps
        figures = np.full((3, len(self._apps)), math.nan) if untold else self._told(now_s, contentions, around)
        # As others come and go what it was made from must stay.
        return FigureReports(round_id, tuple(self._apps), self._places.copy(), self._wanting.copy(), figures)

    def bids(self, app_ids: Iterable[str], offer: Offer, contentions: Figures, around: Surroundings) -> dict[str, Bid]:
        """What some apps bid, by their ids; those are left out that do not wait, and that it takes tables to tell of.

        Args:
            app_ids: The apps.
            offer: What whoever holds nothing is offered, at a time on the clock of the submissions.
            contentions: N_avg of each that waits, in the order of `notes`.
            around: The cluster now.
        """
        there = [self._places[app_id] for app_id in app_ids if app_id in self._places]
        if not there:
            return {}
        room, apps = room_of(offer.free, offer, around), self._apps
        asked = [(place, known) for place in there if (known := apps[place].asked_in(room)) is not None]
        if not asked:
            return {}
        places, counts = [place for place, _ in asked], [len(asks) for _, (asks, _) in asked]
        times_s = [time_s for _, (_, each_s) in asked for time_s in each_s]
        empty_values, values = self._worth(places, counts, times_s, offer.now_s, contentions, around)
        bids, first, round_id = {}, 0, offer.round_id
        for (place, (asks, _)), empty_value in zip(asked, empty_values, strict=True):
            app_id, end = apps[place].app_id, first + len(asks)
            rows = rows_worth(asks, values[first:end], empty_value) if asks else ()
            bids[app_id] = Bid(app_id=app_id, round_id=round_id, empty_value=empty_value, rows=rows)
            first = end
        return bids

    def _worth(
        self,
        places: Sequence[int],
        counts: Sequence[int],
        times_s: list[float],
        now_s: float,
        contentions: Figures,
        around: Surroundings,
    ) -> tuple[list[float], list[float]]:
        """What `Valuer.value` says of nothing for each app, and of all times, to the last bit.

        Args:
            places: Of the apps.
            counts: How many of the times are each one's.
            times_s: T on what they may ask for, one app's after the other's, in seconds.
            now_s: The time, on the clock of the submissions.
            contentions: N_avg of each that waits, in the order of `notes`.
            around: The cluster now.
        """
        own = np.array(places)
        # Nothing is a bundle on which the app never ends.
        of, all_times_s = np.concatenate((own, own.repeat(counts))), np.array([math.inf] * len(places) + times_s)
        # Before the figures are read: it notes t_cluster of apps that are new.
        share_s = self._share_s(around)
        spent_s = now_s - self._figures[self._SUBMITTED, of]
        shared_s = all_shared_s(around.rule, all_times_s, spent_s=spent_s, share_s=share_s[of], lease_s=around.lease_s)
        ideal_s = self._figures[self._CLUSTER_S, of] * contentions[of]
        values: list[float] = all_values(ideal_s, shared_s).tolist()
        return values[: len(places)], values[len(places) :]

    def _told(self, now_s: float, contentions: Figures, around: Surroundings) -> Figures:
        """Rho, t_shared and t_ideal of each [3, apps]."""
        if len(self._apps) <= _FEW:
            return self._told_one_by_one(now_s, contentions, around)
        # Before the figures are read: it notes t_cluster of apps that are new.
        share_s = self._share_s(around)
        figures = self._figures[:, : len(self._apps)]
        return figures_of(now_s - figures[self._SUBMITTED], share_s, figures[self._CLUSTER_S] * contentions, around)

    def _told_one_by_one(self, now_s: float, contentions: Figures, around: Surroundings) -> Figures:
        submitted_s = self._figures[self._SUBMITTED, : len(self._apps)].tolist()
        rhos, shareds_s, ideals_s = [], [], []
        for app, since_s, contention in zip(self._apps, submitted_s, contentions.tolist(), strict=True):
            valuer = app.valuer(now_s - since_s, contention, around)
            shareds_s.append(valuer.shared_s(math.inf))
            ideals_s.append(valuer.ideal_s)
            rhos.append(shareds_s[-1] / ideals_s[-1])
        return np.array((rhos, shareds_s, ideals_s))

    def _share_s(self, around: Surroundings) -> Figures:
        """T of each on the fair share R/N, in seconds: as `finish_time.time_on_count_s` has it."""
        share_gpus = around.share_gpus
        if (around.cluster_gpus, int(share_gpus)) != (self._cluster_gpus, self._whole_gpus):
            self._cluster_gpus, self._whole_gpus = around.cluster_gpus, int(share_gpus)
            self._new.update(self._places)
        for app_id in self._new:
            self._note(self._places[app_id], around)
        self._new.clear()
        figures = self._figures[:, : len(self._apps)]
        whole_s: Figures = figures[self._WHOLE_S]
        if share_gpus <= 0.0:
            return whole_s
        part = figures[self._SMALLEST] > share_gpus
        return np.where(part, figures[self._SMALLEST_GPU_S] / share_gpus, whole_s)

    def _note(self, place: int, around: Surroundings) -> None:
        """What follows from the cluster and from the whole GPUs of a fair share, which seldom change."""
        app, whole = self._apps[place], int(around.share_gpus)
        self._figures[self._CLUSTER_S, place] = app.cluster_time_s(around)
        self._figures[self._WHOLE_S, place] = app.time_s(whole, around) if whole >= app.smallest_gpus else math.inf
