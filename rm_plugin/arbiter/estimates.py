"""When each app gets its next GPUs, and when it ends: the cluster played forward from now on. Pure.

The model:
    Apps, their phases and GPUs are those of the fluid fair cluster (`themis.fluid_cluster`), but GPUs are whole, are
    leased, and go to apps in the order of the policy. Nothing else happens: no app arrives, no machine comes or goes,
    and every app does the work that it reports.
Leases:
    An app keeps its GPUs until its lease ends or a phase needs fewer. Then the apps are served again. An app that held
    nothing loses `restart_s` before it works.
Orders:
    The model reduces a policy to an order of service (`ServiceOrder`); `order_of` names that of each policy.

The errors of the model are systematic: for example, forecasts are too early while apps still arrive. So each estimate
has an interval from the errors of earlier estimates, which `themis reproduce estimates` measures.

Example: 4 GPUs, leases of 600 s that end at 600, 1200, .. s. App a holds all GPUs and has 2400 GPU s left, b waits with
1200 GPU s for 4 GPUs. The shortest is served first. b gets the GPUs at 600 s, when the lease of a ends. But by then a
has done 2400 GPU s and ended. b ends at 900 s, and a restart of 20 s makes it 920 s.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType

from rm_plugin.arbiter.fair_finish_order import OVERRUN_LEFT, Contender, Turn, fair_finish_order
from rm_plugin.arbiter.round_values import RoundSettings
from rm_plugin.arbiter.user_ranks import Users
from themis.fluid_cluster import FluidPhase
from themis.leases import SAME_TIME_S
from themis.queues import NO_OWNER, AppOwner
from themis.values import Value

_TERMS = 300
"""About how many lease terms a forecast plays. If the end is further away, the model uses longer terms."""

_MAX_STEPS_PER_TERM = 4
"""The model stops after this many steps for each term, not counting those at ends of phases. Apps that have not ended
by then have no estimate. Example: leases so short that restarts take all of them."""

_CALM = 0.7
"""The cluster is calm while apps can use less than this share of its GPUs."""


Errors = tuple[float, float, float]
"""Ratios between what happened and the forecast: their 10 %, 50 % and 90 % quantiles."""


class ServiceOrder(StrEnum):
    """In which order a policy serves apps, as far as estimates model it.

    FAIR_FINISH: that of `fair_finish` (`rm_plugin.arbiter.fair_finish_order`).
    SHORTEST_FIRST: the user with the least work left first, of one user the app with the least.
    WORST_RHO_FIRST: the fifth of the apps with the worst rho first, gang by gang in turns, then the others that could
        use more.
    LEAST_SERVED_FIRST: the least GPU time so far first, gang by gang in turns.
    """

    FAIR_FINISH = "fair finish"
    SHORTEST_FIRST = "shortest first"
    WORST_RHO_FIRST = "worst rho first"
    LEAST_SERVED_FIRST = "least served first"


_ORDERS: Mapping[str, ServiceOrder] = MappingProxyType(
    {
        "fair_finish": ServiceOrder.FAIR_FINISH,
        "srsf": ServiceOrder.SHORTEST_FIRST,
        "srtf": ServiceOrder.SHORTEST_FIRST,
        "themis": ServiceOrder.WORST_RHO_FIRST,
        "worst_rho_first": ServiceOrder.WORST_RHO_FIRST,
    }
)


def order_of(policy: str) -> ServiceOrder:
    """The order of service of a policy. Policies that share in another way count as serving the least served first."""
    return _ORDERS.get(policy, ServiceOrder.LEAST_SERVED_FIRST)


class AppNow(Value, frozen=True, kw_only=True):
    """An active app at the moment of an estimate.

    Attributes:
        app_id: The app.
        submitted_at_s: When it was submitted.
        phases_left: What is left of its phases, in their order.
        whole_time_s: Seconds of all its phases alone on the whole cluster.
        smallest_gang: GPUs with which it can start.
        largest_gang: The most GPUs that one of its jobs can use.
        held_gpus: GPUs that it holds.
        lease_end_s: When their leases end.
        attained_gpu_s: GPU time that it had so far.
        restart_s: What a start costs.
        fair_end_s: Its end on the fluid fair cluster. Infinite while unknown.
        owner: Whose app it is.
        overran: Whether it did far more work than it declared, so that `fair_finish` never presses it.
    """

    app_id: str
    submitted_at_s: float
    phases_left: tuple[FluidPhase, ...]
    whole_time_s: float
    smallest_gang: int = 1
    largest_gang: int = 1
    held_gpus: int = 0
    lease_end_s: float = 0.0
    attained_gpu_s: float = 0.0
    restart_s: float = 0.0
    fair_end_s: float = math.inf
    owner: AppOwner = NO_OWNER
    overran: bool = False


class ClusterNow(Value, frozen=True, kw_only=True):
    """The cluster at the moment of an estimate, and how its policy serves apps.

    Attributes:
        gpus: GPUs that are available.
        now_s: The present time.
        lease_s: Seconds of a lease.
        lease_end_s: When leases granted now end. The ends of all other leases are on one grid with it.
        order: The order of service.
        settings: Those of rounds; the preemption margin and the weights of users count.
    """

    gpus: int
    now_s: float
    lease_s: float
    lease_end_s: float
    order: ServiceOrder
    settings: RoundSettings


class Situation(StrEnum):
    """What an app holds now. How exact its estimate is depends on this more than on anything else.

    CALM: all that it can use, and all apps together can use less than 70 % of the GPUs.
    FULL: all that it can use, in a busier cluster.
    PART: some of what it can use.
    WAITS: nothing.
    """

    CALM = "calm"
    FULL = "full"
    PART = "part"
    WAITS = "waits"


class Forecast(Value, frozen=True, kw_only=True):
    """The model's forecast for an app.

    Attributes:
        first_gpu_at_s: When it first holds GPUs; now, if it holds some. Infinite if it never does.
        ends_at_s: When it ends. Infinite if it never does.
        rank: Its place among the apps that can use more GPUs. None if it cannot.
        situation: What it holds now.
    """

    first_gpu_at_s: float = math.inf
    ends_at_s: float = math.inf
    rank: int | None = None
    situation: Situation


class Interval(Value, frozen=True, kw_only=True):
    """Seconds from now: the median, and bounds that hold four times in five.

    Infinite if it never happens, NaN if it is unknown.
    """

    median: float
    low: float
    high: float


_NOW = Interval(median=0.0, low=0.0, high=0.0)
UNKNOWN = Interval(median=math.nan, low=math.nan, high=math.nan)


class Estimate(Value, frozen=True, kw_only=True):
    """When an app first holds GPUs (0 if it does now), and when it ends."""

    first_gpu_s: Interval
    end_s: Interval


@dataclass(slots=True, eq=False)
class _App:
    """An app of the model. `gpus`, `demand` and `left_gpu_s` are of its current phase.

    `demand` is `gpus` in whole GPUs, at least its smallest gang. It works from `works_from_s` on.
    """

    now: AppNow
    phase: int
    gpus: float
    demand: int
    left_gpu_s: float
    later_gpu_s: float
    later_s: float
    held: int
    lease_end_s: float
    works_from_s: float
    served_gpu_s: float

    @property
    def rate(self) -> float:
        return min(self.held, self.gpus)

    @property
    def work_left_gpu_s(self) -> float:
        return self.left_gpu_s + self.later_gpu_s

    @property
    def time_left_s(self) -> float:
        """Seconds that it needs with all that it can use."""
        return self.left_gpu_s / self.gpus + self.later_s

    @property
    def phase_end_s(self) -> float:
        return self.works_from_s + self.left_gpu_s / self.rate


def forecast(apps: Sequence[AppNow], cluster: ClusterNow) -> dict[str, Forecast]:
    """Play the cluster forward until every active app has ended, and say when each gets GPUs and ends."""
    model = _Model(apps, cluster)
    ranks = {app.now.app_id: place for place, app in enumerate(model.served_in_order(), start=1)}
    first_gpu_at_s = {app.app_id: cluster.now_s for app in apps if app.held_gpus}
    calm = sum(map(demand_of, apps)) < _CALM * cluster.gpus
    ends_at_s = {}
    for at_s, app in model.play():
        if app.work_left_gpu_s <= 0.0:
            ends_at_s[app.now.app_id] = at_s
        else:
            first_gpu_at_s.setdefault(app.now.app_id, at_s)
    return {
        app.app_id: Forecast(
            first_gpu_at_s=first_gpu_at_s.get(app.app_id, math.inf),
            ends_at_s=ends_at_s.get(app.app_id, math.inf),
            rank=ranks.get(app.app_id),
            situation=_situation(app, calm=calm),
        )
        for app in apps
    }


def estimate_of(app: AppNow, made: Forecast, *, now_s: float, lease_s: float, order: ServiceOrder) -> Estimate:
    """The estimate of an app from its forecast, which was made at `now_s`.

    Errors are ratios (actual + lease) / (forecast + lease), so that a short way to go does not make them large.
    An app has its first GPU before it ends. The errors of the first GPU are the wider ones, so the end limits them.
    """
    errors = END_ERRORS[order][made.situation, len(app.phases_left) > 1]
    end_s = _interval(made.ends_at_s - now_s, lease_s, errors)
    if app.held_gpus:
        return Estimate(first_gpu_s=_NOW, end_s=end_s)
    first = _interval(made.first_gpu_at_s - now_s, lease_s, FIRST_GPU_ERRORS[order])
    first_gpu_s = Interval(
        median=min(first.median, end_s.median), low=min(first.low, end_s.low), high=min(first.high, end_s.high)
    )
    return Estimate(first_gpu_s=first_gpu_s, end_s=end_s)


def _interval(forecast_s: float, lease_s: float, errors: Errors) -> Interval:
    low, median, high = (max(0.0, (forecast_s + lease_s) * error - lease_s) for error in errors)
    return Interval(median=median, low=low, high=high)


def demand_of(app: AppNow) -> int:
    """GPUs that an app can use now."""
    return _whole_gpus(app, app.phases_left[0]) if app.phases_left else 0


def _whole_gpus(app: AppNow, phase: FluidPhase) -> int:
    return max(app.smallest_gang, math.ceil(phase.gpus - 1e-6))


def _situation(app: AppNow, *, calm: bool) -> Situation:
    if not app.held_gpus:
        return Situation.WAITS
    if app.held_gpus < demand_of(app):
        return Situation.PART
    return Situation.CALM if calm else Situation.FULL


class _Model:
    """The cluster played forward."""

    def __init__(self, apps: Sequence[AppNow], cluster: ClusterNow) -> None:
        self._gpus, self._now_s = cluster.gpus, cluster.now_s
        self._order, self._settings = cluster.order, cluster.settings
        self._apps = [_app_of(app, cluster.now_s) for app in apps if app.phases_left]
        self._users = self._users_now()
        work_gpu_s = math.fsum(app.work_left_gpu_s for app in self._apps)
        longest_s = max((app.time_left_s for app in self._apps), default=0.0)
        self._lease_s = max(cluster.lease_s, (work_gpu_s / max(1, cluster.gpus) + longest_s) / _TERMS)
        self._max_steps = _MAX_STEPS_PER_TERM * _TERMS + sum(1 + len(app.now.phases_left) for app in self._apps)
        self._grid_s = cluster.lease_end_s

    def play(self) -> Iterator[tuple[float, _App]]:
        """Yield an app, with the time, whenever it gets GPUs after it held none, and when it ends."""
        yield from self._serve()
        for _ in range(self._max_steps):
            next_s = self._next_s()
            if not math.isfinite(next_s):
                return
            self._pass_until(next_s)
            for app in [app for app in self._apps if app.held and app.phase_end_s <= next_s + SAME_TIME_S]:
                if self._end_phase(app):
                    yield next_s, app
            yield from self._serve()

    def _next_s(self) -> float:
        """When the next phase or lease ends; infinite if nothing runs."""
        return min(
            (min(app.phase_end_s, max(app.lease_end_s, self._now_s)) for app in self._apps if app.held),
            default=math.inf,
        )

    def _pass_until(self, now_s: float) -> None:
        for app in self._apps:
            if app.held:
                app.served_gpu_s += (now_s - self._now_s) * app.held
                worked_s = now_s - app.works_from_s
                if worked_s > 0.0:
                    app.left_gpu_s = max(0.0, app.left_gpu_s - worked_s * app.rate)
                    app.works_from_s = now_s
        self._now_s = now_s

    def _end_phase(self, app: _App) -> bool:
        """Begin the next phase of an app on the GPUs that it still needs. Returns whether the app has ended."""
        phases = app.now.phases_left
        app.phase += 1
        if app.phase == len(phases):
            self._apps.remove(app)
            self._users = self._users_now()
            app.left_gpu_s = app.later_gpu_s = 0.0
            return True
        phase = phases[app.phase]
        app.gpus, app.demand = phase.gpus, _whole_gpus(app.now, phase)
        app.left_gpu_s = phase.work_gpu_s
        app.later_gpu_s = max(0.0, app.later_gpu_s - phase.work_gpu_s)
        app.later_s = max(0.0, app.later_s - phase.time_s)
        app.held = min(app.held, app.demand)
        return False

    def _serve(self) -> Iterator[tuple[float, _App]]:
        """Give free GPUs, and those whose leases end now, to the apps in the order of service."""
        now_s, kept = self._now_s, self._kept()
        free = self._gpus - sum(kept.values())
        if free <= 0:
            return
        grid_s = self._next_grid_s()
        for turns, tier in self._tiers(kept):
            while tier and turns and free > 0:
                turns, tier = turns - 1, [app for app in tier if kept[app] < app.demand]
                left = free
                for app in tier:
                    if not free:
                        break
                    gang = min(app.now.largest_gang, app.demand - kept[app], free)
                    if gang >= (1 if kept[app] else app.now.smallest_gang):
                        kept[app], free = kept[app] + gang, free - gang
                        app.lease_end_s = grid_s
                if free == left:
                    break
        for app, held in kept.items():
            starts = not app.held and held > 0
            app.held = held
            if starts:
                app.works_from_s = now_s + app.now.restart_s
                yield now_s, app

    def served_in_order(self) -> list[_App]:
        """The apps that can use more GPUs, in the order in which they would be served now."""
        served = dict.fromkeys(app for _, tier in self._tiers(self._kept()) for app in tier)
        return [app for app in served if app.held < app.demand]

    def _kept(self) -> dict[_App, int]:
        """The GPUs of each app whose leases do not end now."""
        ended_s = self._now_s + SAME_TIME_S
        return {app: 0 if app.lease_end_s <= ended_s else app.held for app in self._apps}

    def _users_now(self) -> Users:
        return Users({app.now.app_id: app.now.owner for app in self._apps}, self._settings.queues)

    def _tiers(self, kept: Mapping[_App, int]) -> list[tuple[float, list[_App]]]:
        """Return groups of apps in their order. Each group is served gang by gang, for this number of turns."""
        if self._order is ServiceOrder.FAIR_FINISH:
            by_id = {app.now.app_id: app for app in self._apps}
            return [(1 if turn.one_gang else math.inf, [by_id[turn.app_id]]) for turn in self._fair_finish_order(kept)]
        now_s, apps = self._now_s, [app for app in self._apps if kept[app] < app.demand]
        if self._order is ServiceOrder.LEAST_SERVED_FIRST:
            return [(math.inf, sorted(apps, key=lambda app: (app.served_gpu_s, app.now.app_id)))]
        if self._order is ServiceOrder.WORST_RHO_FIRST:
            places = max(1, math.ceil(0.2 * len(self._apps) - 1e-9))
            ordered = sorted(apps, key=lambda app: (-_rho(app, now_s), app.now.app_id))
            return [(math.inf, ordered[:places]), (math.inf, ordered[places:])]
        ranks = self._users.ranks({app.now.app_id: app.work_left_gpu_s for app in self._apps})
        return [(math.inf, [app]) for app in sorted(apps, key=lambda app: ranks[app.now.app_id])]

    def _fair_finish_order(self, kept: Mapping[_App, int]) -> list[Turn]:
        contenders = [
            Contender(
                app_id=app.now.app_id,
                submitted_at_s=app.now.submitted_at_s,
                due_s=app.now.fair_end_s,
                left_gpu_s=OVERRUN_LEFT * app.served_gpu_s if app.now.overran else app.work_left_gpu_s,
                time_left_s=app.time_left_s,
                restart_s=app.now.restart_s,
                kept_gpus=kept[app],
                held_gpus=app.held,
                wanted_gpus=app.demand,
                overran=app.now.overran,
            )
            for app in self._apps
        ]
        return fair_finish_order(
            contenders,
            self._users,
            now_s=self._now_s,
            lease_s=self._lease_s,
            preemption_margin=self._settings.preemption_margin,
        )

    def _next_grid_s(self) -> float:
        """When leases granted now end: later than now, also if a quotient of large times is rounded down."""
        terms = max(0, math.floor((self._now_s - self._grid_s) / self._lease_s))
        while (end_s := self._grid_s + terms * self._lease_s) <= self._now_s + SAME_TIME_S:
            terms += 1
        return end_s


def _app_of(app: AppNow, now_s: float) -> _App:
    first, later = app.phases_left[0], app.phases_left[1:]
    return _App(
        now=app,
        phase=0,
        gpus=first.gpus,
        demand=_whole_gpus(app, first),
        left_gpu_s=first.work_gpu_s,
        later_gpu_s=math.fsum(phase.work_gpu_s for phase in later),
        later_s=math.fsum(phase.time_s for phase in later),
        held=app.held_gpus,
        lease_end_s=app.lease_end_s,
        works_from_s=now_s,
        served_gpu_s=app.attained_gpu_s,
    )


def _rho(app: _App, now_s: float) -> float:
    """The paper's rho without the factor N, which is about the same for all apps: total time over time alone."""
    return (now_s - app.now.submitted_at_s + app.time_left_s) / max(app.now.whole_time_s, 1e-9)


# ---- the errors of earlier estimates --------------------------------------------------------------------------------

_WORST_RHO_ENDS: Mapping[tuple[Situation, bool], Errors] = MappingProxyType(
    {
        (Situation.CALM, False): (0.939, 0.995, 1.070),
        (Situation.CALM, True): (0.768, 0.948, 1.376),
        (Situation.FULL, False): (0.945, 1.013, 1.314),
        (Situation.FULL, True): (0.842, 1.053, 1.488),
        (Situation.PART, False): (0.815, 1.108, 1.914),
        (Situation.PART, True): (0.739, 1.092, 1.585),
        (Situation.WAITS, False): (0.990, 1.376, 2.344),
        (Situation.WAITS, True): (0.974, 1.446, 2.396),
    }
)
_FAIR_FINISH_ENDS: Mapping[tuple[Situation, bool], Errors] = MappingProxyType(
    {
        (Situation.CALM, False): (0.943, 0.995, 1.045),
        (Situation.CALM, True): (0.781, 0.973, 1.162),
        (Situation.FULL, False): (0.945, 0.995, 1.045),
        (Situation.FULL, True): (0.777, 0.966, 1.162),
        (Situation.PART, False): (0.692, 0.982, 1.109),
        (Situation.PART, True): (0.646, 0.951, 1.151),
        (Situation.WAITS, False): (0.861, 1.023, 1.221),
        (Situation.WAITS, True): (0.770, 0.992, 1.200),
    }
)

END_ERRORS: Mapping[ServiceOrder, Mapping[tuple[Situation, bool], Errors]] = MappingProxyType(
    {
        ServiceOrder.WORST_RHO_FIRST: _WORST_RHO_ENDS,
        ServiceOrder.LEAST_SERVED_FIRST: _WORST_RHO_ENDS,
        ServiceOrder.FAIR_FINISH: _FAIR_FINISH_ENDS,
        ServiceOrder.SHORTEST_FIRST: _FAIR_FINISH_ENDS,
    }
)
"""Errors of ends, by situation and whether the app has later phases; measured by `themis reproduce estimates`.

Those of LEAST_SERVED_FIRST and SHORTEST_FIRST were not measured. The table repeats those of WORST_RHO_FIRST and
FAIR_FINISH."""

FIRST_GPU_ERRORS: Mapping[ServiceOrder, Errors] = MappingProxyType(
    {
        ServiceOrder.WORST_RHO_FIRST: (0.682, 1.844, 5.477),
        ServiceOrder.LEAST_SERVED_FIRST: (0.682, 1.844, 5.477),
        ServiceOrder.FAIR_FINISH: (0.352, 0.996, 2.057),
        ServiceOrder.SHORTEST_FIRST: (0.352, 0.996, 2.057),
    }
)
"""Errors of the time to the first GPU, for apps that wait; measured in the same way."""
