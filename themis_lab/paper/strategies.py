"""Agents for cells: module-level functions with plain arguments, so that runs can be sent to other processes."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from msgspec.structs import replace

from am.agent.model.fairness import ideal_times_s
from am.agent.model.views import AppView, ClusterView
from rm_plugin.arbiter.seeds import child_seed
from themis.apps import Slowdown
from themis.bids import AppReport, Bid, GangDemand, Offer, PhaseLeft, RhoOf
from themis.rho import RhoDefinition
from themis_lab.simulator.agents import Agent, ErringAgent, HonestAgent, Lie, LyingAgent, lie_named, with_slowdowns
from themis_lab.simulator.workload import AppTrace


def erring_agent(app: AppTrace, error: float, seed: int) -> Agent:
    """An honest agent that errs by up to `error`; each app errs on its own."""
    return ErringAgent(HonestAgent(), error, child_seed(seed, "error", app.name))


def lying_agent(app: AppTrace, liar: str, lie: str, amount: float) -> Agent:
    """A liar for the app of that name, honest agents for all others.

    Args:
        app: Whose agent is wanted.
        liar: The name of the app that lies.
        lie: A key of OWN_LIES or of `themis_lab.simulator.agents.LIES`.
        amount: What the lie takes.
    """
    chosen = lie_of(lie, amount)
    return LyingAgent(HonestAgent(), chosen) if app.name == liar else HonestAgent()


def lie_of(kind: str, amount: float) -> Lie:
    """Return the lie of a kind in OWN_LIES or the simulator's LIES; raise UnknownNameError for another."""
    return OWN_LIES[kind](amount) if kind in OWN_LIES else lie_named(kind, amount)


def lie_about_strictness(factor: float) -> Lie:
    """The app claims that what S adds to 1 is `factor` times as much at every level, in its reports as in its bids."""

    def claimed(true: Slowdown) -> Slowdown:
        levels = (true.slot, true.machine, true.rack, true.cluster)
        return Slowdown(*(1.0 + (level - 1.0) * factor for level in levels))

    return Lie(name=f"S - 1 times {factor:g}", view=lambda app: with_slowdowns(app, claimed))


def lie_about_loss(factor: float) -> Lie:
    """The app claims to be at its iterations over `factor`: with more than 1 its losses seem to fall faster."""

    def misstated(demand: GangDemand) -> GangDemand:
        true = demand.forecast
        return (
            demand if true is None else replace(demand, forecast=replace(true, iteration=int(true.iteration / factor)))
        )

    def report(truth: AppReport) -> AppReport:
        return replace(truth, demands=tuple(misstated(demand) for demand in truth.demands))

    return Lie(name=f"loss as at an iteration {factor:g} times earlier", report=report)


def lie_about_demand(factor: float) -> Lie:
    """The app claims that each of its jobs can use `factor` times as many GPUs, at least its smallest gang."""

    def report(truth: AppReport) -> AppReport:
        demands = tuple(
            replace(demand, max_gpus=max(demand.min_gpus, round(demand.max_gpus * factor))) for demand in truth.demands
        )
        phases = tuple(replace(phase, gang_gpus=max(1, round(phase.gang_gpus * factor))) for phase in truth.phases_left)
        return replace(truth, demands=demands, phases_left=phases)

    return Lie(name=f"GPUs of a gang times {factor:g}", report=report)


def lie_about_phases(factor: float) -> Lie:
    """The app claims that the longest job of each phase has `factor` times the work, as far as the phase's work allows.

    With a larger factor the app seems to need more time on the whole cluster, so it is pressed earlier.
    """

    def misstated(phase: PhaseLeft) -> PhaseLeft:
        longest_gpu_s = max(phase.work_gpu_s / phase.jobs, phase.longest_gpu_s * factor)
        return replace(phase, longest_gpu_s=min(phase.work_gpu_s, longest_gpu_s))

    def report(truth: AppReport) -> AppReport:
        return replace(truth, phases_left=tuple(misstated(phase) for phase in truth.phases_left))

    return Lie(name=f"longest job of a phase times {factor:g}", report=report)


def lie_about_restarts(factor: float) -> Lie:
    """The app claims that moving one of its jobs costs `factor` times as much. Fair finish presses it earlier then."""

    def report(truth: AppReport) -> AppReport:
        return replace(truth, restart_s=truth.restart_s * factor)

    return Lie(name=f"seconds of a restart times {factor:g}", report=report)


OWN_LIES: Mapping[str, Callable[[float], Lie]] = MappingProxyType(
    {
        "strictness": lie_about_strictness,
        "loss": lie_about_loss,
        "demand": lie_about_demand,
        "phases": lie_about_phases,
        "restarts": lie_about_restarts,
    }
)
"""Lies made for single policies: gandiva and optimus go by S, slaq by forecasts of the loss, fair_finish by phases and
the cost of restarts."""


class RankedAgent:
    """The production agent, but for rho in its reports, which is by other definitions: the arbiter filters by it.

    The ideal is of the app as it was submitted, among as many apps as it has had in its time so far (N_avg).
    Bids are as they are: T_ideal is one number for all bundles of an app, which does not affect the auction's product.

    Args:
        inner: Answers on the app as it is.
        definitions: Of t_ideal; of several the geometric mean is taken.
    """

    def __init__(self, inner: Agent, definitions: Sequence[RhoDefinition]) -> None:
        self._inner = inner
        self._definitions = tuple(definitions)
        self._whole: AppView | None = None

    def report(self, app: AppView, cluster: ClusterView, round_id: int, rho_of: RhoOf = RhoOf.EVERY_APP) -> AppReport:
        """The report with rho by these definitions."""
        if self._whole is None:
            # The first report is asked before the app has held a GPU: its work is then as it was submitted.
            self._whole = replace(app, elapsed_s=0.0, held=())
        truth = self._inner.report(app, cluster, round_id, rho_of)
        ideals_s = ideal_times_s(replace(self._whole, contention=app.contention), cluster)
        logs = [math.log(ideals_s[definition]) for definition in self._definitions]
        ideal_s = math.exp(math.fsum(logs) / len(logs))
        return replace(truth, rho=truth.t_shared_s / ideal_s, t_ideal_s=ideal_s)

    def bid(self, app: AppView, offer: Offer, cluster: ClusterView) -> Bid:
        """What the production agent bids."""
        return self._inner.bid(app, offer, cluster)


FILTERS: Mapping[str, tuple[RhoDefinition, ...]] = MappingProxyType(
    {
        "isolated_share": (RhoDefinition.ISOLATED_SHARE,),
        "themis and isolated_share": (RhoDefinition.THEMIS, RhoDefinition.ISOLATED_SHARE),
    }
)
"""Other definitions that apps can be filtered by, by name."""


def ranked_agent(app: AppTrace, by: str) -> Agent:
    """An honest agent that reports rho by another definition; `by` is a key of FILTERS."""
    del app
    return RankedAgent(HonestAgent(), FILTERS[by])
