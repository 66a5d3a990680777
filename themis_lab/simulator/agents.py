"""The agents of a run: honest ones, and wrappers that estimate wrongly or lie."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from itertools import accumulate
from random import Random
from types import MappingProxyType
from typing import Protocol, TypeVar

from msgspec.structs import replace

from am.agent.bids.bidding import BidMemory, make_bid
from am.agent.bids.reports import make_report
from am.agent.model.views import AppView, ClusterView, JobView
from rm_plugin.arbiter.seeds import child_seed
from themis.apps import Slowdown
from themis.bids import AppReport, Bid, Offer, RhoOf
from themis.errors import InputError, UnknownNameError
from themis.speeds import Speeds
from themis.values import Value

T = TypeVar("T")


class Agent(Protocol):
    """Reports and bids for one app."""

    def report(self, app: AppView, cluster: ClusterView, round_id: int, rho_of: RhoOf = RhoOf.EVERY_APP) -> AppReport:
        """The report as a round begins, with rho if the round asks for it."""
        ...

    def bid(self, app: AppView, offer: Offer, cluster: ClusterView) -> Bid:
        """The answer to an offer."""
        ...


class HonestAgent:
    """The production agent."""

    def __init__(self) -> None:
        self._memory = BidMemory()

    def report(self, app: AppView, cluster: ClusterView, round_id: int, rho_of: RhoOf = RhoOf.EVERY_APP) -> AppReport:
        """The report of `am.agent`."""
        return make_report(app, cluster, round_id, rho_of)

    def bid(self, app: AppView, offer: Offer, cluster: ClusterView) -> Bid:
        """The bid of `am.agent`."""
        return make_bid(app, offer, cluster, self._memory)


_MAX_ROUNDS_PER_MOMENT = 3
"""Rounds at one moment in which an agent uses what it believes or claims; after that it uses the truth."""


class _Patience:
    """Ends endless rounds: an app asks for GPUs, returns them as useless, and asks for them again."""

    def __init__(self) -> None:
        self._elapsed_s = -1.0
        self._rounds = 0

    def next_round(self, app: AppView) -> None:
        """Another round begins."""
        self._rounds = self._rounds + 1 if app.elapsed_s == self._elapsed_s else 1
        self._elapsed_s = app.elapsed_s

    @property
    def lost(self) -> bool:
        """Whether the app must have won GPUs that it cannot use, after more than `_MAX_ROUNDS_PER_MOMENT` rounds."""
        return self._rounds > _MAX_ROUNDS_PER_MOMENT


class ErringAgent:
    """Misjudges the iterations left and S of its jobs by a random error (NSDI'20, section 6.3, figure 17).

    The app has one factor for the iterations left, in this phase and in later ones, and one for S, both drawn once:
    uniform in [1 - error, 1 + error]. S stays at 1 or more. What the app would take by itself, T_ideal, is not touched:
    an error in both would partly cancel in rho.

    Args:
        inner: Answers on what is believed.
        error: X, from 0 up to but not including 1.
        seed: Of the draws; give each app its own.
    """

    def __init__(self, inner: Agent, error: float, seed: int) -> None:
        if not 0.0 <= error < 1.0:
            raise InputError("an error must be 0 or more and less than 1", value=error)
        self._inner = inner
        self._patience = _Patience()
        self._left = 1.0 + Random(child_seed(seed, "iterations")).uniform(-error, error)
        self._slower = 1.0 + Random(child_seed(seed, "slowdown")).uniform(-error, error)

    def report(self, app: AppView, cluster: ClusterView, round_id: int, rho_of: RhoOf = RhoOf.EVERY_APP) -> AppReport:
        """Report what the agent believes."""
        self._patience.next_round(app)
        return self._inner.report(self._believed(app), cluster, round_id, rho_of)

    def bid(self, app: AppView, offer: Offer, cluster: ClusterView) -> Bid:
        """Bid by what the agent believes."""
        return self._inner.bid(self._believed(app), offer, cluster)

    def _believed(self, app: AppView) -> AppView:
        if self._patience.lost:
            return app
        return with_work(with_slowdowns(app, lambda slowdown: _times(slowdown, (self._slower,) * 4)), self._left)


def with_work(app: AppView, factor: float) -> AppView:
    """Return the app with `factor` times the iterations left in each job and later phase, at least one."""

    def scaled(iterations: int) -> int:
        return max(1, round(iterations * factor))

    jobs = tuple(replace(job, iterations_left=scaled(job.iterations_left)) for job in app.jobs)
    phases = tuple(replace(phase, iterations=scaled(phase.iterations)) for phase in app.later_phases)
    return replace(app, jobs=jobs, later_phases=phases)


def with_slowdowns(app: AppView, change: Callable[[Slowdown], Slowdown]) -> AppView:
    """Return the app with another S for each of its jobs, and for the reference job of later phases."""
    changed = cache(change)
    jobs = tuple(replace(job, slowdown=changed(job.slowdown)) for job in app.jobs)
    reference = None if app.reference is None else replace(app.reference, slowdown=changed(app.reference.slowdown))
    return replace(app, jobs=jobs, reference=reference)


def with_speeds(app: AppView, change: Callable[[JobView], JobView]) -> AppView:
    """Return the app with each of its jobs changed, and its reference job for later phases too."""
    reference = None if app.reference is None else change(app.reference)
    return replace(app, jobs=tuple(change(job) for job in app.jobs), reference=reference)


def _fastest_times(speeds: Speeds, factor: float) -> Speeds:
    """Return the speeds, with that on the fastest type multiplied by `factor`."""
    fastest = speeds.by_type[:1]
    return Speeds.of([*[(device, speed * factor) for device, speed in fastest], *speeds.by_type[1:]])


class StatedSpeeds:
    """The view of an app whose user states `factor` times its jobs' true speed on the type on which they are fastest.

    The app master is honest: its profiler measures the types that a job runs on, and jobs that have not run on two
    types assume what another job measured (`am.profiler.profile`, `am.jobs.search_state`). The first type that a job
    ran on keeps its stated speed, and its work counts in units of it.

    Example: the true speeds are k80: 1, v100: 3, and the stated ones k80: 1, v100: 9. A job that has run on both
    reports k80: 1, v100: 3. If it ran on the v100 first, it reports k80: 3, v100: 9 and three times the work.

    Holds the device types that each job was measured on, so every app needs its own.
    """

    def __init__(self, factor: float) -> None:
        self._factor = factor
        self._ran: dict[str, tuple[str, ...]] = {}

    def __call__(self, app: AppView) -> AppView:
        """The app by stated and measured speeds."""
        self._ran |= {job.job_id: job.measured for job in app.jobs if job.measured}
        most = max(self._ran.values(), key=len, default=())
        measured = most if len(most) > 1 else ()

        def believed(job: JobView) -> JobView:
            own = self._ran.get(job.job_id, ())
            ran = own if len(own) > 1 or not measured else measured
            return self._believed(job, ran)

        return with_speeds(app, believed)

    def _believed(self, job: JobView, ran: Sequence[str]) -> JobView:
        """Return a job with the speeds that its app master believes. `ran` are the types that it ran on, in order."""
        stated, true = _fastest_times(job.speeds, self._factor), job.speeds
        unit = stated.on(ran[0]) / true.on(ran[0]) if ran else 1.0
        speeds = [
            (device, true.on(device) * unit if device in ran else speed) for device, speed in sorted(stated.by_type)
        ]
        return replace(job, serial_iteration_s=job.serial_iteration_s * unit, speeds=Speeds.of(speeds))


def rows_times(bid: Bid, factor: float, place: int | None = None) -> Bid:
    """The bid with all its rows, or the one at that place, worth `factor` times as much; the empty bundle stays."""
    rows = tuple(
        replace(row, value=row.value * factor) if place in (None, index) else row for index, row in enumerate(bid.rows)
    )
    return replace(bid, rows=rows)


def _times(slowdown: Slowdown, factors: Sequence[float]) -> Slowdown:
    """Multiply S by a factor per level. The result is at least 1, and never smaller at a looser level."""
    levels = (slowdown.slot, slowdown.machine, slowdown.rack, slowdown.cluster)
    scaled = (max(1.0, level * factor) for level, factor in zip(levels, factors, strict=True))
    return Slowdown(*accumulate(scaled, max))


def _as_it_is(truth: T) -> T:
    return truth


class Lie(Value, frozen=True, kw_only=True):
    """How a lying agent changes the truth: its view of the app, its report, and its bid."""

    name: str
    view: Callable[[AppView], AppView] = _as_it_is
    report: Callable[[AppReport], AppReport] = _as_it_is
    bid: Callable[[Bid], Bid] = _as_it_is

    @property
    def in_reports(self) -> bool:
        """Whether reports contain the lie; reports are made from the view too."""
        return self.view is not _as_it_is or self.report is not _as_it_is

    @property
    def in_bids(self) -> bool:
        """Whether bids contain the lie; bids are made from the view too."""
        return self.view is not _as_it_is or self.bid is not _as_it_is


class LyingAgent:
    """Lies in every round, except in rounds that its own lies would repeat without end."""

    def __init__(self, inner: Agent, lie: Lie) -> None:
        self._inner = inner
        self._lie = lie
        self._patience = _Patience()

    def report(self, app: AppView, cluster: ClusterView, round_id: int, rho_of: RhoOf = RhoOf.EVERY_APP) -> AppReport:
        """Return the false report."""
        self._patience.next_round(app)
        lie = self._current_lie
        return lie.report(self._inner.report(lie.view(app), cluster, round_id, rho_of))

    def bid(self, app: AppView, offer: Offer, cluster: ClusterView) -> Bid:
        """Return the false bid."""
        lie = self._current_lie
        return lie.bid(self._inner.bid(lie.view(app), offer, cluster))

    @property
    def _current_lie(self) -> Lie:
        return _TRUTH if self._patience.lost else self._lie


_TRUTH = Lie(name="the truth")


def lie_about_slowdown(share: float) -> Lie:
    """The lie of the paper's figure 18: the app reports S across machines `share` larger, within one smaller."""
    factors = (1.0 - share, 1.0 - share, 1.0 + share, 1.0 + share)
    return Lie(name=f"S off by {share:.0%}", view=lambda app: with_slowdowns(app, lambda true: _times(true, factors)))


def lie_by_factor(factor: float) -> Lie:
    """The app multiplies the value of every row by `factor`. It states the true value of the empty bundle."""
    return Lie(name=f"rows times {factor:g}", bid=lambda truth: rows_times(truth, factor))


def lie_by_largest_row(factor: float) -> Lie:
    """The app multiplies the value of its largest row by `factor`.

    Of rows of equal size it takes the best, and of equally good ones the first.
    """

    def bid(truth: Bid) -> Bid:
        if not truth.rows:
            return truth
        place = max(range(len(truth.rows)), key=lambda index: (truth.rows[index].gpus, truth.rows[index].value, -index))
        return rows_times(truth, factor, place)

    return Lie(name=f"largest row times {factor:g}", bid=bid)


def lie_about_work(factor: float) -> Lie:
    """The app claims `factor` times the work that it has left, in reports and bids."""
    return Lie(name=f"work times {factor:g}", view=lambda app: with_work(app, factor))


def lie_about_speed(factor: float) -> Lie:
    """The app claims `factor` times its speed on the device type on which it is fastest, whatever it measures.

    Without effect on a cluster of one device type.
    """

    def claimed(job: JobView) -> JobView:
        return replace(job, speeds=_fastest_times(job.speeds, factor))

    return Lie(name=f"fastest speed times {factor:g}", view=lambda app: with_speeds(app, claimed))


def wrong_statement_of_speed(factor: float) -> Lie:
    """The app's user states `factor` times its speed on that device type; its app master reports what it measures."""
    return Lie(name=f"stated fastest speed times {factor:g}", view=StatedSpeeds(factor))


def lie_about_rho(factor: float) -> Lie:
    """The app multiplies its rho by `factor` in reports. Its bids are true."""

    def report(truth: AppReport) -> AppReport:
        return replace(truth, rho=truth.rho * factor, t_shared_s=truth.t_shared_s * factor)

    return Lie(name=f"rho times {factor:g}", report=report)


def lie_throughout(factor: float) -> Lie:
    """The app multiplies its rho in reports, and the values of its rows in bids, by `factor`."""
    about_rho, about_rows = lie_about_rho(factor), lie_by_factor(factor)
    return Lie(name=f"rho and rows times {factor:g}", report=about_rho.report, bid=about_rows.bid)


LIES: Mapping[str, Callable[[float], Lie]] = MappingProxyType(
    {
        "rows": lie_by_factor,
        "largest_row": lie_by_largest_row,
        "rho": lie_about_rho,
        "throughout": lie_throughout,
        "work": lie_about_work,
        "slowdown": lie_about_slowdown,
        "speed": lie_about_speed,
        "stated_speed": wrong_statement_of_speed,
    }
)
"""Kinds of lies by name. All take a factor but `slowdown`, which takes a share."""


def lie_named(kind: str, amount: float) -> Lie:
    """Return the lie of this kind. Raises UnknownNameError for an unknown kind."""
    if kind not in LIES:
        raise UnknownNameError("lie", kind, LIES)
    return LIES[kind](amount)
