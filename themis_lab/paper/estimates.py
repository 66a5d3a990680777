"""Measure the errors of estimates of the first GPU and of the end (`rm_plugin.arbiter.estimates`) in simulator runs.

Each run asks for the estimate of every active app once per lease. At most `PER_APP` estimates of each app, spread
evenly over its life, are compared with what happened, so that long apps do not count more than short ones.

Jobs of the simulator keep their pace and report it exactly; real ones do not. So the work that an app reports is off by
a factor of its own. Its logarithm has the standard deviation `NOISE`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from itertools import pairwise
from random import Random
from statistics import quantiles
from typing import TYPE_CHECKING

from msgspec.structs import replace

from am.agent.model.fairness import fluid_phases
from am.agent.model.views import ClusterView
from am.app_view import make_cluster_view
from rm_plugin.arbiter.estimates import (
    AppNow,
    ClusterNow,
    Errors,
    Estimate,
    Forecast,
    ServiceOrder,
    Situation,
    estimate_of,
    forecast,
    order_of,
)
from rm_plugin.arbiter.seeds import child_seed
from rm_plugin.policies.due_dates import has_overrun
from themis.fluid_cluster import FluidPhase
from themis.values import Value
from themis_lab.paper.own_runs import OwnRuns, row
from themis_lab.paper.plans import settings_of
from themis_lab.paper.plotting import colour_of, legend_below, new_figure
from themis_lab.paper.port import Findings, Scale
from themis_lab.paper.report_frame import number_text
from themis_lab.paper.statistics import Row, mean, median
from themis_lab.simulator.app import SimApp
from themis_lab.simulator.clusters import cluster_named
from themis_lab.simulator.simulation import Simulation
from themis_lab.simulator.workloads.registry import workload_named

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CLUSTER = "testbed"
POLICIES = ("themis", "fair_finish")
WORKLOADS: Mapping[Scale, tuple[str, ...]] = {
    Scale.QUICK: ("w1-small", "w2-small"),
    Scale.PAPER: ("w1-small", "w2-small", "w1", "w2"),
}
NOISE = 0.05
PER_APP = 20
CALIBRATION = 1000
"""The errors in `rm_plugin.arbiter.estimates` come from seeds above this number, the results from seeds 1, 2, .."""

HORIZONS_S = (0.0, 1800.0, 7200.0, 28800.0, math.inf)
"""Classes of the seconds that an estimate expects until the end."""


class Sample(Value, frozen=True, kw_only=True):
    """An estimate and what happened, in seconds from then. `first_gpu_s` is None for an app that held GPUs."""

    app_id: str
    later_phases: bool
    forecast: Forecast
    estimate: Estimate
    at_s: float
    lease_s: float
    first_gpu_s: float | None
    end_s: float

    @property
    def end_error(self) -> float:
        """The ratio of `END_ERRORS`."""
        return (self.end_s + self.lease_s) / (self.forecast.ends_at_s - self.at_s + self.lease_s)

    @property
    def first_gpu_error(self) -> float:
        """The ratio of `FIRST_GPU_ERRORS`, of an app that waits."""
        waited_s = self.end_s if self.first_gpu_s is None else self.first_gpu_s
        return (waited_s + self.lease_s) / (self.forecast.first_gpu_at_s - self.at_s + self.lease_s)

    @property
    def end_holds(self) -> bool:
        """Whether the app ended within the interval."""
        return self.estimate.end_s.low <= self.end_s <= self.estimate.end_s.high

    @property
    def first_gpu_holds(self) -> bool:
        """Whether the app got GPUs within the interval."""
        interval = self.estimate.first_gpu_s
        return self.first_gpu_s is not None and interval.low <= self.first_gpu_s <= interval.high


class Calibration(Value, frozen=True, kw_only=True):
    """The experiment."""

    name: str = "estimates"
    title: str = "estimates of the first GPU and of the end: how often their 80 % intervals hold"

    def run(self, scale: Scale, seeds: int) -> Findings:
        """Test intervals on seeds 1 to `seeds`, and derive their quantiles from the same number of other seeds."""
        rows: list[Row] = []
        table = [("workload", "policy", "estimates", "ends in interval", "first GPUs in interval", *_horizon_names())]
        for workload in WORKLOADS[scale]:
            for policy in POLICIES:
                by_seed = {seed: samples(workload, policy, seed) for seed in range(1, seeds + 1)}
                for noise, name in ((NOISE, workload), (0.0, f"{workload}, exact reports")):
                    for seed, found in by_seed.items():
                        rows += _rows(f"{name}, {policy}", seed, found[noise])
                    pooled = [each for found in by_seed.values() for each in found[noise]]
                    table.append((name, policy, *_line(pooled)))
        for policy in POLICIES:
            calibrating = [
                each
                for workload in WORKLOADS[Scale.QUICK]
                for seed in range(CALIBRATION + 1, CALIBRATION + 1 + seeds)
                for each in samples(workload, policy, seed)[NOISE]
            ]
            rows += _error_rows(order_of(policy), calibrating)
        return Findings(rows=tuple(rows), comparisons=(), table=tuple(table), remarks=_REMARKS)

    def draw(self, findings: Findings) -> Figure:
        """Draw the share of intervals that hold, by workload and policy, over seeds."""
        figure = new_figure(1, width=8.0)
        axes = figure.axes[0]
        shares = [each for each in findings.rows if each["panel"] == "ends that hold"]
        groups = list(dict.fromkeys(str(each["group"]) for each in shares))
        axes.axhspan(0.75, 0.85, color="0.9", label="75 to 85 %")
        for place, group in enumerate(groups):
            values = [float(each["value"]) for each in shares if each["group"] == group]
            axes.plot([place] * len(values), values, "o", color=colour_of(group, place % 2), alpha=0.5)
            axes.plot([place], [mean(values)], "_", color="black", markersize=18)
        axes.set(ylim=(0.0, 1.02), ylabel="share of intervals that hold")
        axes.set_xticks(range(len(groups)), [group.replace(", ", "\n") for group in groups])
        legend_below(figure)
        return figure


EXPERIMENTS: tuple[OwnRuns, ...] = (Calibration(),)

_REMARKS = (
    f"An interval should hold 80 % of the time. The work that apps report is off by a factor of each app, whose "
    f"logarithm has a standard deviation of {NOISE:g}, except in the rows with exact reports.",
    "The last columns give the median distance in minutes between the expected end and the real one, by the time to "
    "the expected end.",
)


# ---- runs -----------------------------------------------------------------------------------------------------------


def samples(workload: str, policy: str, seed: int) -> dict[float, list[Sample]]:
    """Estimates of a run with what happened, by the noise of reports: `NOISE` and 0."""
    simulation = Simulation(workload_named(workload, seed, cluster_named(CLUSTER)), settings_of(CLUSTER, policy, seed))
    watches = {noise: _Watch(seed, noise) for noise in (NOISE, 0.0)}

    def watch(running: Simulation) -> None:
        for each in watches.values():
            each(running)

    record = simulation.run(watch)
    ended_at_s = {app.name: app.ended_at_s for app in record.apps}
    return {noise: _samples(each, simulation, ended_at_s) for noise, each in watches.items()}


def _samples(watch: _Watch, simulation: Simulation, ended_at_s: Mapping[str, float]) -> list[Sample]:
    by_app: dict[str, list[Sample]] = {}
    for app, made, estimate, at_s in watch.asked:
        got_at_s = next((got_s for got_s in watch.got_at_s.get(app.app_id, ()) if got_s > at_s), None)
        sample = Sample(
            app_id=app.app_id,
            later_phases=len(app.phases_left) > 1,
            forecast=made,
            estimate=estimate,
            at_s=at_s,
            lease_s=simulation.settings.leases.duration_s,
            first_gpu_s=None if app.held_gpus or got_at_s is None else got_at_s - at_s,
            end_s=ended_at_s[app.app_id] - at_s,
        )
        by_app.setdefault(app.app_id, []).append(sample)
    return [each for mine in by_app.values() for each in _spread(mine)]


def _spread(mine: Sequence[Sample]) -> Iterator[Sample]:
    """At most `PER_APP` of an app's samples, evenly spread."""
    count = min(PER_APP, len(mine))
    for place in range(count):
        yield mine[place * len(mine) // count]


class _Watch:
    """Asks for estimates of all apps once per lease, and notes when apps get GPUs after they held none."""

    def __init__(self, seed: int, noise: float) -> None:
        self.asked: list[tuple[AppNow, Forecast, Estimate, float]] = []
        self.got_at_s: dict[str, list[float]] = {}
        self._seed, self._noise = seed, noise
        self._holders: set[str] = set()
        self._next_s = 0.0

    def __call__(self, simulation: Simulation) -> None:
        now_s, arbiter = simulation.now_s, simulation.arbiter
        holders = {app_id for app_id in simulation.apps if arbiter.table.live_of(app_id)}
        for app_id in holders - self._holders:
            self.got_at_s.setdefault(app_id, []).append(now_s)
        self._holders = holders
        if now_s < self._next_s:
            return
        lease_s = simulation.settings.leases.duration_s
        self._next_s = now_s + lease_s
        order, apps = order_of(simulation.settings.policy), apps_now(simulation)
        apps = [self._as_reported(app) for app in apps]
        cluster = ClusterNow(
            gpus=arbiter.gpus_available,
            now_s=now_s,
            lease_s=lease_s,
            lease_end_s=arbiter.lease_end_s(now_s),
            order=order,
            settings=arbiter.round_settings,
        )
        made = forecast(apps, cluster)
        for app in apps:
            found = made[app.app_id]
            estimate = estimate_of(app, found, now_s=now_s, lease_s=lease_s, order=order)
            self.asked.append((app, found, estimate, now_s))

    def _as_reported(self, app: AppNow) -> AppNow:
        """The app with the work that it reports."""
        factor = math.exp(Random(child_seed(self._seed, "reported work", app.app_id)).gauss(0.0, self._noise))
        return replace(app, phases_left=tuple(FluidPhase(each.time_s * factor, each.gpus) for each in app.phases_left))


def apps_now(simulation: Simulation) -> list[AppNow]:
    """The active apps of a run as estimates see them."""
    settings = simulation.settings
    cluster_view = make_cluster_view(
        settings.cluster, active_apps=1, lease_s=settings.leases.duration_s, rule=settings.bundle_rule
    )
    lives = deepcopy(simulation.fluid).run_out()
    found = (_app_now(simulation, app, cluster_view, lives[app_id].ends_s) for app_id, app in simulation.apps.items())
    return [app for app in found if app is not None]


def _app_now(simulation: Simulation, app: SimApp, cluster_view: ClusterView, fair_end_s: float) -> AppNow | None:
    """An app; None between two phases."""
    now_s, arbiter = simulation.now_s, simulation.arbiter
    view = app.view(now_s, now_s, 1.0)
    if not view.jobs:
        return None
    leases = arbiter.table.live_of(app.app_id)
    return AppNow(
        app_id=app.app_id,
        submitted_at_s=app.submitted_at_s,
        phases_left=fluid_phases(view, cluster_view),
        whole_time_s=math.fsum(phase.time_s for phase in fluid_phases(app.whole_view(1.0), cluster_view)),
        smallest_gang=app.smallest_gang_gpus,
        largest_gang=max(job.shape.demand_max_gpus for job in app.trace.jobs),
        held_gpus=len(leases),
        lease_end_s=max((lease.expires_at_s for lease in leases), default=0.0),
        attained_gpu_s=arbiter.attained_gpu_s(app.app_id, now_s),
        restart_s=app.costs.restart_s,
        fair_end_s=fair_end_s,
        owner=app.trace.owner,
        overran=has_overrun(arbiter.policy_memory, app.app_id),
    )


# ---- measures -------------------------------------------------------------------------------------------------------


def end_errors(found: Sequence[Sample]) -> dict[tuple[Situation, bool], Errors]:
    """Quantiles of the errors of ends, by situation and whether the app has later phases."""
    classes: dict[tuple[Situation, bool], list[float]] = {}
    for each in found:
        classes.setdefault((each.forecast.situation, each.later_phases), []).append(each.end_error)
    return {key: _quantiles(errors) for key, errors in sorted(classes.items()) if len(errors) > 1}


def first_gpu_errors(found: Sequence[Sample]) -> Errors:
    """Quantiles of the errors of first GPUs."""
    return _quantiles([each.first_gpu_error for each in _waiting(found)])


def _quantiles(errors: Sequence[float]) -> Errors:
    tenths = quantiles(errors, n=10, method="inclusive")
    return tenths[0], tenths[4], tenths[8]


def _waiting(found: Sequence[Sample]) -> list[Sample]:
    return [each for each in found if each.forecast.situation is Situation.WAITS]


def _error_rows(order: ServiceOrder, found: Sequence[Sample]) -> Iterator[Row]:
    """The quantiles that the tables of `rm_plugin.arbiter.estimates` should have."""
    classes = {
        **{
            f"end, {situation}{', later phases' if later else ''}": errors
            for (situation, later), errors in end_errors(found).items()
        },
        "first GPU": first_gpu_errors(found),
    }
    for name, errors in classes.items():
        for quantile, value in zip(("10 %", "50 %", "90 %"), errors, strict=True):
            yield row(f"errors, {order}", quantile, name, 0, value)


def _rows(group: str, seed: int, found: Sequence[Sample]) -> Iterator[Row]:
    yield row("ends that hold", "share", group, seed, mean(each.end_holds for each in found))
    if waiting := _waiting(found):
        yield row("first GPUs that hold", "share", group, seed, mean(each.first_gpu_holds for each in waiting))
    for name, distance_s in zip(_horizon_names(), _distances_s(found), strict=True):
        if distance_s is not None:
            yield row("median error of the end (s)", name, group, seed, distance_s)


def _line(found: Sequence[Sample]) -> tuple[str, ...]:
    waiting = _waiting(found)
    first = f"{100 * mean(each.first_gpu_holds for each in waiting):.0f} % of {len(waiting)}" if waiting else ""
    distances = ("" if each is None else number_text(each / 60.0) for each in _distances_s(found))
    return str(len(found)), f"{100 * mean(each.end_holds for each in found):.0f} %", first, *distances


def _distances_s(found: Sequence[Sample]) -> list[float | None]:
    """The median distance between expected and real end by horizon; None without estimates."""
    medians: list[float | None] = []
    for low_s, high_s in pairwise(HORIZONS_S):
        inside = [each for each in found if low_s <= each.estimate.end_s.median < high_s]
        medians.append(median(abs(each.end_s - each.estimate.end_s.median) for each in inside) if inside else None)
    return medians


def _horizon_names() -> list[str]:
    hours = [each / 3600.0 for each in HORIZONS_S]
    inner = [f"error, {low:g} to {high:g} h" for low, high in pairwise(hours[:-1])]
    return [*inner, f"error, over {hours[-2]:g} h"]
