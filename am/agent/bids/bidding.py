"""Build bids: the bundles of GPUs that an app asks for, and the value of each (docs/design/valuation.md).

An offer lists free GPUs, including the app's own GPUs whose leases end in this round (*renewable* GPUs). A bid answers
with rows. A row asks for gangs within a locality level, for pinned GPUs on named machines, or for both. An app wins at
most one row.

How a bid is made (`make_bids`):
    1. Device types: an offer of several types is split by type. Steps 2 to 7 make a bid on each part, and `merge_bids`
       joins these bids.
    2. Candidates (`_candidates`): the bundles that the app may ask for. `candidate_tables` lists what may become of the
       held gangs, and for each of these cases the new gangs on top.
    3. Times (`_times_s`): T on each candidate.
    4. Values (`_values`): V of the empty bundle and of each candidate.
    5. Gains (`_gains`): what each candidate is worth more than the empty bundle, as a logarithm.
    6. Choice (`CandidateSet.chosen`): candidates worth more than the empty bundle that no other one dominates.
    7. Rows (`CandidateSet.row`): each chosen candidate as a row of the bid.

`docs/design/valuation.md` defines V, says what a division may do, and works out an example. In short: V = 1/rho =
t_ideal / t_shared at the best division of the bundle into gangs, and t_shared contains one restart if any gang of the
app changes. For example, t_ideal is 400 s, and the app was submitted 100 s ago. A bundle on which it would end in 100 s
is worth 400 / 200 = 2.0 if all its gangs stay. If a gang changes and a restart takes 20 s, it is worth
400 / 220 = 1.818.

Limits: large tables are thinned (`enumerate_candidates`, `dominance.thinned`), and `rows_dropped` counts what is
missing. Extensions that `gang_extensions` omits are not counted. Source: NSDI'20, equations 1 and 2.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from am.agent.bids.bounded_cache import BoundedCache
from am.agent.bids.by_type import app_on_type, merge_bids, offer_on_type, types_on_offer
from am.agent.bids.candidate_set import CandidateSet
from am.agent.bids.candidate_tables import tables_of
from am.agent.candidates.gang_kinds import GangOption, gang_options, relevant_slowdown
from am.agent.candidates.search_space import MAX_PACKED_CLOSELY
from am.agent.model.division_times import finish_times_s
from am.agent.model.fairness import shared_times_s, values_of
from am.agent.model.outlook import Outlook, times_of
from am.agent.model.views import AppView, ClusterView, GangAt
from themis.bids import Bid, Offer
from themis.cluster import Allocation
from themis.placement.gang_capacity import GangCapacity

ROW_CAP = 700
"""Rows that a bid may hold for each device type.

Past it rows are left out that others replace, at the least loss (`dominance.thinned`).
"""

_MAX_DROPPED = 10**9
"""Where `rows_dropped` stops counting: complete tables of large apps have more rows than a message can hold."""

Floats = NDArray[np.float64]
Counts = NDArray[np.int64]


class BidMemory:
    """Candidates that apps of one job have in common, between bids.

    What a single job that keeps no GPUs may ask for depends on its shape, its S, the gangs that fit and its renewable
    gang, not on its work. An app master keeps one memory for its app, a simulator one for all apps.
    """

    def __init__(self) -> None:
        self._gang_options: BoundedCache[tuple[GangOption, ...]] = BoundedCache(4096)
        self._sets: BoundedCache[CandidateSet] = BoundedCache(4096)

    def single_job_set(self, app: AppView, offer: Offer, capacity: GangCapacity) -> CandidateSet:
        """The candidates of an app that has one job and keeps no GPUs (`keeps_nothing`)."""
        (job,) = app.jobs
        same_job = job.shape, relevant_slowdown(job), capacity.traits
        requests = self._gang_options.of(
            same_job, lambda: tuple(gang_options(app, capacity, job.shape.demand_max_gpus))
        )
        fits = tuple([capacity.most(at.gpus, unit_gpus, within) > 0 for at, within, unit_gpus in requests])
        held = tuple([(gang, gang.renewable_gpus.within(offer.free), app.restart_s) for gang in app.held])
        return self._sets.of((same_job, fits, held), lambda: CandidateSet(tables_of(app, offer, capacity), job))


def make_bid(app: AppView, offer: Offer, cluster: ClusterView, memory: BidMemory | None = None) -> Bid:
    """The bid of one app, at the moment of its view; see `make_bids`."""
    moment = np.array([app.elapsed_s]), np.array([app.contention])
    return make_bids([Outlook(app, cluster)], *moment, offer, cluster, memory)[0]


def make_bids(
    outlooks: Sequence[Outlook],
    elapsed_s: Floats,
    contentions: Floats,
    offer: Offer,
    cluster: ClusterView,
    memory: BidMemory | None = None,
) -> list[Bid]:
    """The bids of N apps on one offer, in their order: V of the empty bundle, and rows that say V of every bundle.

    For every bundle within the offer the best row that it contains is worth V(bundle), as long as `rows_dropped` is 0
    and the extensions of its gangs are few (`gang_extensions`).

    Args:
        outlooks: The N apps.
        elapsed_s: Seconds since each was submitted [N].
        contentions: N_avg of each [N].
        offer: Free GPUs by machine and slot, renewable ones included.
        cluster: The cluster now.
        memory: What earlier bids have in common with these.
    """
    if cluster.types:
        moment = zip(elapsed_s.tolist(), contentions.tolist(), strict=True)
        return [_bid_by_type(each, *at, offer, cluster) for each, at in zip(outlooks, moment, strict=True)]
    return _make_bids_on_one_type(outlooks, elapsed_s, contentions, offer, cluster, memory or BidMemory())


def _bid_by_type(outlook: Outlook, elapsed_s: float, contention: float, offer: Offer, cluster: ClusterView) -> Bid:
    """The bid of one app on a cluster of several device types; see `am.agent.bids.by_type`."""
    moment = np.array([elapsed_s]), np.array([contention])
    types = types_on_offer(outlook.app, offer, cluster)
    if not types:
        nothing = replace(offer, free=Allocation(), slots={})
        return _make_bids_on_one_type([outlook], *moment, nothing, cluster, BidMemory())[0]
    bids = []
    for each in types:
        there = replace(cluster, fitting_level=each.fitting_level)
        app = Outlook(app_on_type(outlook.app, each.device), there)
        part = offer_on_type(offer, each.device, cluster)
        bids.append((each.device, _make_bids_on_one_type([app], *moment, part, there, BidMemory())[0]))
    # With one type on offer, the market is one of a single type and gangs need not name it.
    several = len({cluster.device_of.get(machine_id) for machine_id, _ in offer.free}) > 1
    return merge_bids(bids) if several else bids[0][1]


def _make_bids_on_one_type(
    outlooks: Sequence[Outlook],
    elapsed_s: Floats,
    contentions: Floats,
    offer: Offer,
    cluster: ClusterView,
    memory: BidMemory,
) -> list[Bid]:
    """`make_bids` on an offer of one device type."""
    if not outlooks:
        return []
    candidates = _candidates(outlooks, offer, cluster, memory)
    times_s = _times_s(outlooks, candidates, cluster)
    empty_values, values = _values(outlooks, candidates, times_s, (elapsed_s, contentions), cluster)
    gains = _gains(values, np.repeat(empty_values, [len(each) for each in candidates]))
    bids, start = [], 0
    for outlook, each, empty_value in zip(outlooks, candidates, empty_values.tolist(), strict=True):
        some = slice(start, start + len(each))
        start = some.stop
        sent, useful = each.chosen(values[some], gains[some], empty_value, ROW_CAP)
        row_values = values[some].tolist()
        rows = tuple([each.row(index, row_values[index]) for index in sent])
        dropped = min(useful - len(rows) + each.missing, _MAX_DROPPED)
        app_id = outlook.app.app_id
        bids.append(
            Bid(app_id=app_id, round_id=offer.round_id, empty_value=empty_value, rows=rows, rows_dropped=dropped)
        )
    return bids


def _candidates(
    outlooks: Sequence[Outlook], offer: Offer, cluster: ClusterView, memory: BidMemory
) -> list[CandidateSet]:
    """What each app may ask for. Single jobs of one shape and S that keep no GPUs may ask for the same."""
    capacity = GangCapacity(offer.free.by_machine(), offer.slots, cluster.rack_of)
    shared: dict[object, CandidateSet] = {}
    found = []
    for outlook in outlooks:
        app = outlook.app
        if len(app.jobs) != 1 or app.later_phases or not keeps_nothing(app):
            found.append(CandidateSet(tables_of(app, offer, capacity)))
            continue
        key = app.jobs[0].shape, relevant_slowdown(app.jobs[0]), app.held, app.restart_s
        candidates = shared.get(key)
        if candidates is None:
            candidates = shared[key] = memory.single_job_set(app, offer, capacity)
        found.append(candidates)
    return found


def keeps_nothing(app: AppView) -> bool:
    """Whether all GPUs of the app are renewable: at most one gang, and that as a whole."""
    return not app.held or (
        len(app.held) == 1 and app.held[0].renewable and app.held[0].renewable_gpus == app.held[0].gpus
    )


def _times_s(outlooks: Sequence[Outlook], candidates: Sequence[CandidateSet], cluster: ClusterView) -> Floats:
    """T on all candidates, one app after the other, in seconds."""
    slowdowns, usables = np.concatenate([each.paces for each in candidates], axis=1)
    works_s = np.array([outlook.app.jobs[0].serial_work_s if outlook.app.jobs else 0.0 for outlook in outlooks])
    # Right for an app with one job. Apps with several jobs follow below.
    times_s: Floats = works_s.repeat([len(each) for each in candidates]) * slowdowns / usables
    start = 0
    for outlook, each in zip(outlooks, candidates, strict=True):
        if not each.single_job:
            times_s[start : start + len(each)] = _packed_times_s(outlook.app, each, cluster)
        start += len(each)
    return times_s


def _packed_times_s(app: AppView, candidates: CandidateSet, cluster: ClusterView) -> Floats:
    """T on every candidate of an app whose jobs may share gangs, in seconds.

    The best candidates of an app that holds nothing are packed more closely. An app that holds gangs compares each
    bundle with what it holds, which is not packed closely. A bundle must not look better only because it is packed more
    closely, so both sides of that comparison are packed alike.
    """
    tables = candidates.tables
    if not tables:
        return np.zeros(0)
    gangs: dict[GangAt, int] = {}
    for table in tables:
        for gang in (*table.gangs, *[kind.at for kind in table.kinds]):
            gangs.setdefault(gang, len(gangs))
    counts = np.concatenate([table.counts_of(gangs) for table in tables])
    times_s = finish_times_s(app, tuple(gangs), counts, cluster)
    if not app.held:
        best = np.argsort(times_s, kind="stable")[:MAX_PACKED_CLOSELY]
        times_s[best] = finish_times_s(app, tuple(gangs), counts[best], cluster, closely=True)
    return times_s


def _values(
    outlooks: Sequence[Outlook],
    candidates: Sequence[CandidateSet],
    times_s: Floats,
    moment: tuple[Floats, Floats],
    cluster: ClusterView,
) -> tuple[Floats, Floats]:
    """V of the empty bundle of each app, and of all candidates one app after the other.

    Args:
        outlooks: The N apps.
        candidates: Those of each.
        times_s: T on all of these, in seconds.
        moment: Seconds since each app was submitted, and N_avg of each.
        cluster: The cluster now.
    """
    elapsed_s, contentions = moment
    apps, sizes = np.arange(len(outlooks)), [len(each) for each in candidates]
    app_of = np.concatenate((apps, apps.repeat(sizes)))
    known = times_of(outlooks, cluster)
    ideal_s = known.cluster_s * contentions
    switch_s = np.concatenate((known.switch_s, *[each.switch_s for each in candidates]))
    shared_s = shared_times_s(
        cluster.rule,
        np.concatenate((known.empty_s, times_s)),
        spent_s=elapsed_s[app_of] + switch_s,
        share_s=known.share_s[app_of],
        lease_s=cluster.lease_s,
    )
    values = values_of(ideal_s[app_of], shared_s)
    return values[: len(outlooks)], values[len(outlooks) :]


def _gains(values: Floats, empty_values: Floats) -> Floats:
    """What candidates gain over the empty bundle: log(V / V of it), or V if the empty bundle is worth nothing."""
    some = (empty_values > 0.0) & (values > 0.0)
    gains = values.copy()
    gains[some] = np.log(values[some] / empty_values[some])
    return gains
