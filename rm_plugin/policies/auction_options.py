"""The choices of the policy `themis` by name: who bids, what bids are worth, and who gets the leftovers.

The paper's choices are the defaults. The alternatives are for ablations (docs/explanation/auction.md, Options of the
policy).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from msgspec.structs import replace

from rm_plugin.arbiter.leftovers import AppDemand, share_leftovers
from rm_plugin.arbiter.round_values import RoundSettings, RoundSnapshot
from rm_plugin.arbiter.seeds import child_seed
from rm_plugin.policies.due_dates import DueDateMemory, advance, due_times_s
from rm_plugin.policies.gang_allocator import GangAllocator
from rm_plugin.policies.users import rho_as_one_app
from themis.bids import Bid, PlacedGang
from themis.choices import Bidders, BidValues, LeftoverOrder
from themis.placement.free_capacity import FreeCapacity

GangsByJob = dict[str, dict[str, PlacedGang]]
"""Gangs by job by app."""

Spans = Mapping[str, float]
"""Seconds from an app's submission to its due date, by app. Apps that never reported their phases have none."""


def uses_due_dates(settings: RoundSettings) -> bool:
    """Whether a choice goes by due dates, so that the policy must remember the fluid cluster."""
    return settings.bidders is Bidders.PRESSED or settings.values is BidValues.SLACK


def spans_of(snapshot: RoundSnapshot) -> tuple[Spans, DueDateMemory]:
    """The spans of the active apps, and what the policy has to remember of the fluid cluster."""
    fluid, memory = advance(snapshot)
    due_s = due_times_s(fluid, memory.apps)
    spans = {
        app.app_id: due_s[app.app_id] - app.submitted_at_s
        for app in snapshot.apps
        if 0.0 < due_s.get(app.app_id, math.inf) - app.submitted_at_s < math.inf
    }
    return spans, memory


# ---- who bids -------------------------------------------------------------------------------------------------------

Pressures = Callable[[RoundSnapshot, Spans], Mapping[str, float]]
"""How badly each app needs GPUs; the apps of the largest value bid."""


def _rho(snapshot: RoundSnapshot, spans: Spans) -> Mapping[str, float]:
    del spans
    return rho_as_one_app(snapshot)


def _time_over_span(snapshot: RoundSnapshot, spans: Spans) -> Mapping[str, float]:
    return {
        app_id: report.t_shared_s / spans.get(app_id, math.inf) if report.t_shared_s > 0.0 else 0.0
        for app_id, report in snapshot.answered.items()
    }


PRESSURES: Mapping[Bidders, Pressures] = MappingProxyType(
    {Bidders.WORST_RHO: _rho, Bidders.PRESSED: _time_over_span, Bidders.ALL: _rho}
)


def bidding_apps(snapshot: RoundSnapshot, spans: Spans) -> tuple[str, ...]:
    """The apps that are asked to bid, most pressed first: ceil((1 - f) N) of them, at least one, or all.

    N counts the active apps that answered, by weight (`Contentions.weights`): the apps of a user who has many take up
    no more places than one app of a user who has one. Apps that could use nothing more are not asked: an offer to them
    is wasted, and a place in the auction too. For example, with f = 0.8 and 12 apps of equal weight the ceil(2.4) = 3
    worst bid, of those that could use more.
    """
    settings, answered, weight = snapshot.settings, snapshot.answered, snapshot.contentions.weight
    share = 1.0 if settings.bidders is Bidders.ALL else 1.0 - settings.f
    # 1 - 0.8 is 0.19999999999999996: without the rounding five apps would count as fewer than one fifth of them.
    places = round(share * sum(map(weight, answered)), 9)
    pressures = PRESSURES[settings.bidders](snapshot, spans)
    with_demand = [(-pressures[app_id], app_id) for app_id, report in answered.items() if report.demands]
    asked: list[str] = []
    for _, app_id in sorted(with_demand):
        if asked and places <= 0.0:
            break
        places -= weight(app_id)
        asked.append(app_id)
    return tuple(asked)


# ---- what bids are worth --------------------------------------------------------------------------------------------

LogValue = Callable[[float, float, float], float]
"""The log of a bundle's value, up to a constant of the app, from the app's time with the bundle, its span and the
lease, all in seconds."""

_MAX_LOG = 300.0
"""Logs of values relative to the empty bundle are cut off here, so that values stay finite floats."""


def _seconds(time_s: float, span_s: float, lease_s: float) -> float:
    del span_s
    return -time_s / lease_s


def _log_slack(time_s: float, span_s: float, lease_s: float) -> float:
    """The log of the slack in leases. From about one lease on, late apps included, it turns into the slack itself.

    So a value stays positive, and an app that is late values a second as much as any other late app. The smooth
    transition is log(1 + exp(slack)), known as softplus.
    """
    slack = (span_s - time_s) / lease_s
    if slack > 30.0:
        return math.log(slack)
    return slack if slack < -30.0 else math.log(math.log1p(math.exp(slack)))


LOG_VALUES: Mapping[BidValues, LogValue] = MappingProxyType({BidValues.SECONDS: _seconds, BidValues.SLACK: _log_slack})
"""All but 1/rho, which is what apps bid."""


def valued_bids(snapshot: RoundSnapshot, spans: Spans) -> tuple[Bid, ...]:
    """The bids of a round by app id, with the values that its settings ask for.

    Apps bid 1/rho, which is t_ideal / t with their time t. Their reports say t_ideal, so the arbiter knows every t. The
    empty bundle is worth 1 then. An app without a finite t_ideal, or without the due date that is needed, bids nothing.
    """
    bids, values, weight = snapshot.bids or {}, snapshot.settings.values, snapshot.contentions.weight
    if values is BidValues.RHO:
        return tuple([_weighted(bids[app_id], weight(app_id)) for app_id in sorted(bids)])
    log_value, lease_s = LOG_VALUES[values], snapshot.lease_s
    needs_span = values is BidValues.SLACK
    valued = []
    for app_id, bid in sorted(bids.items()):
        ideal_s, span_s = snapshot.reports[app_id].t_ideal_s, spans.get(app_id, math.inf)
        if not 0.0 < ideal_s < math.inf or (needs_span and span_s == math.inf):
            valued.append(replace(bid, rows=()))
            continue
        empty = log_value(ideal_s / bid.empty_value, span_s, lease_s)
        rows = []
        for row in bid.rows:
            log = log_value(ideal_s / row.value, span_s, lease_s) - empty
            rows.append(replace(row, value=math.exp(max(-_MAX_LOG, min(_MAX_LOG, log)))))
        valued.append(_weighted(replace(bid, empty_value=1.0, rows=tuple(rows)), weight(app_id)))
    return tuple(valued)


def _weighted(bid: Bid, weight: float) -> Bid:
    """The bid of an app of this weight: its values, relative to the empty bundle, to the power of the weight.

    The auction maximises the product of values. With weights as exponents that is proportional fairness with weights
    (Cole et al., EC'13, section 4): four bids of weight 1/4 count as much as one.
    """
    if weight == 1.0:
        return bid
    empty = bid.empty_value or 1.0
    rows = [replace(row, value=empty * (row.value / empty) ** weight) for row in bid.rows]
    return replace(bid, rows=tuple(rows))


# ---- who gets the leftovers -----------------------------------------------------------------------------------------


def _at_random(snapshot: RoundSnapshot, capacity: FreeCapacity, app_demands: Sequence[AppDemand]) -> GangsByJob:
    return share_leftovers(capacity, app_demands, child_seed(snapshot.seed, "leftovers"))


def _most_need_first(snapshot: RoundSnapshot, capacity: FreeCapacity, app_demands: Sequence[AppDemand]) -> GangsByJob:
    return _whole_apps(snapshot, capacity, app_demands, lambda app_id: -snapshot.reports[app_id].rho)


def _shortest_first(snapshot: RoundSnapshot, capacity: FreeCapacity, app_demands: Sequence[AppDemand]) -> GangsByJob:
    return _whole_apps(snapshot, capacity, app_demands, lambda app_id: snapshot.reports[app_id].work_left_gpu_s)


def _whole_apps(
    snapshot: RoundSnapshot, capacity: FreeCapacity, app_demands: Sequence[AppDemand], rank: Callable[[str], float]
) -> GangsByJob:
    """Serve whole apps, bidders or not, in the order of their rank. A gang moves where that pays within a lease."""
    allocator = GangAllocator(capacity.machines(), app_demands, snapshot.lease_s)
    for app_id in sorted(allocator.app_demands, key=lambda app_id: (rank(app_id), app_id)):
        allocator.serve_whole(app_id)
    return allocator.gangs()


LEFTOVERS: Mapping[LeftoverOrder, Callable[[RoundSnapshot, FreeCapacity, Sequence[AppDemand]], GangsByJob]] = (
    MappingProxyType(
        {
            LeftoverOrder.RANDOM: _at_random,
            LeftoverOrder.NEED: _most_need_first,
            LeftoverOrder.SHORTEST: _shortest_first,
        }
    )
)
"""Each gives the free GPUs to apps with unmet demand, until none can use another one."""
