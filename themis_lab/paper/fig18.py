"""Figure 18: one of eight identical apps lies about S.

In the paper it gains nothing below 34 % and loses much beyond.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from msgspec.structs import replace

from rm_plugin.arbiter.round_values import RoundSettings
from themis.apps import JobShape
from themis.choices import BundleRule, EmptyBundle
from themis.values import Value
from themis_lab.paper import sweeps
from themis_lab.paper.differences import NOT_KNOWN, differs, sentence, side
from themis_lab.paper.plans import settings_of
from themis_lab.paper.plotting import legend_below, lines, new_figure
from themis_lab.paper.port import Cell, Comparison, Done, Findings, PaperClaim, Scale
from themis_lab.paper.statistics import Row, Summary, mean, run_metrics, summary
from themis_lab.paper.strategies import lying_agent
from themis_lab.simulator.settings import Settings
from themis_lab.simulator.workload import AppTrace, JobTrace, LossCurve, Workload
from themis_lab.simulator.workloads.models import model_named

CLUSTER = "fig18"
APPS = 8
MODEL = "vgg16"
"""The model of all apps: it is sensitive to placement, so that the machine of 8 GPUs is worth most to every app."""

GANG_GPUS = 8
HOURS = 1.5
"""Seconds of a job on its whole gang at S = 1."""

POINTS = (0, 20, 40, 100)
"""X in percent."""


class Setting(Value, frozen=True, kw_only=True):
    """A choice that the paper leaves open: jobs per app, f, and the value of a bundle beyond its lease.

    `liars` apps of each seed lie, one per run. At quick scale they lie by `quick_points` percent.
    """

    title: str
    jobs: int = 1
    f: float
    rule: BundleRule = BundleRule.CONTINUATION
    liars: int = 1
    quick_points: Sequence[int] = POINTS

    def points(self, scale: Scale) -> Sequence[int]:
        """X in percent."""
        return range(0, 101, 5) if scale is Scale.PAPER else self.quick_points

    def liars_of(self, scale: Scale, seed: int) -> list[int]:
        """The apps that lie in turn with this seed. The next seed has other ones; at the paper's scale all apps lie."""
        count = APPS if scale is Scale.PAPER else self.liars
        return [((seed - 1) * count + turn) * _STRIDE % APPS for turn in range(count)]


SETTINGS = (
    Setting(title="GPUs for all, f = 0.8", f=0.8, liars=2, quick_points=(0, 10, 20, 30, 40, 70, 100)),
    Setting(title="twice as many wanted, f = 0.8", jobs=2, f=0.8),
    Setting(title="GPUs for all, f = 0", f=0.0),
    Setting(title="the same, bundles for life", f=0.0, rule=BundleRule.LEXICOGRAPHIC, quick_points=(0, 40)),
)
"""With one job each the apps want just the cluster's 64 GPUs. With f = 0.8 two of eight apps bid, with f = 0 all.

`lexicographic` values a bundle as if the app held it to its end, as the paper's formula reads; by default a bundle is
held for one lease, so that losing one costs little, and so does taking it from others.
"""

_STRIDE = 3
_KEPT = "liar_kept_share"

PAPER_TIPPING = 34.0
_LOSS = 0.05
_LIAR, _OTHERS, _ALL = "liar_completion_h", "truthful_completion_h", "mean_completion_h"


class StrategicLie(Value, frozen=True, kw_only=True):
    """Figure 18 of NSDI'20: one machine of 8 GPUs, 28 of 2, and 8 identical apps of which one lies by X %."""

    name: str = "fig18"
    title: str = "completion times as one of eight like apps lies about S"

    def cells(self, scale: Scale, seeds: int) -> Sequence[Cell]:
        """Themis at each X in each setting. Several apps of a seed lie, one per run."""
        return [
            _cell(setting, seed, liar, share)
            for setting in SETTINGS
            for seed in range(1, seeds + 1)
            for liar in setting.liars_of(scale, seed)
            for share in setting.points(scale)
        ]

    def evaluate(self, done: Sequence[Done]) -> Findings:
        """Return rows of runs. Completion times are divided by those of the honest run."""
        rows = tuple(_row(run) for run in done)
        compared = [line for setting in SETTINGS for line in _lines(_of(rows, setting), setting.title)]
        return Findings(rows=rows, comparisons=tuple(compared), remarks=_remarks(rows), claims=(_claim(rows),))

    def draw(self, findings: Findings) -> Figure:
        """Draw the completion time of the liar, and the mean over the truthful apps, by X. Each setting has a panel."""
        figure = new_figure(len(SETTINGS), width=13.0, sharey=True)
        for axes, setting in zip(figure.axes, SETTINGS, strict=True):
            _panel(axes, _of(findings.rows, setting))
            axes.set_title(setting.title)
        for axes in figure.axes[1:]:
            axes.set_ylabel("")
        longest = max(float(row[column]) for row in findings.rows for column in (_LIAR, _OTHERS))
        figure.axes[0].set_ylim(0.0, 1.05 * longest)
        legend_below(figure)
        return figure


def like_apps(jobs: int) -> Workload:
    """Eight identical apps that arrive together, each with `jobs` elastic jobs on 1 to 8 GPUs."""
    model = model_named(MODEL)
    iterations = round(HOURS * 3600.0 * GANG_GPUS / model.serial_iteration_s)
    apps = tuple(
        AppTrace(
            name=_name(place),
            arrival_s=0.0,
            jobs=tuple(
                JobTrace(
                    job_id=f"j{job}",
                    iterations_total=iterations,
                    serial_iteration_s=model.serial_iteration_s,
                    slowdown=model.slowdown,
                    shape=JobShape(tasks=GANG_GPUS, min_tasks=1),
                    curve=LossCurve(scale=iterations / 10.0),
                )
                for job in range(jobs)
            ),
            model=model.name,
        )
        for place in range(APPS)
    )
    return Workload(name="like-apps", apps=apps, source=f"Made up: {APPS} like apps of {jobs} jobs of {MODEL}.")


def _name(place: int) -> str:
    return f"app-{place}"


def _of(rows: Sequence[Row], setting: Setting) -> list[Row]:
    return sweeps.where(rows, setting=setting.title)


def _cell(setting: Setting, seed: int, liar: int, share: int) -> Cell:
    lies = {"liar": _name(liar), "lie": "slowdown", "amount": share / 100}
    return Cell(
        labels={"setting": setting.title, "lie_percent": share, "seed": seed, "liar": _name(liar)},
        make_workload=like_apps,
        workload_arguments={"jobs": setting.jobs},
        settings=_settings(setting, seed),
        make_agent=lying_agent if share else None,
        agent_arguments=lies if share else {},
    )


def _settings(setting: Setting, seed: int) -> Settings:
    for_life = setting.rule is BundleRule.LEXICOGRAPHIC
    empty = EmptyBundle.LEXICOGRAPHIC if for_life else EmptyBundle.FINITE
    settings = settings_of(CLUSTER, sweeps.OURS, seed, rounds=RoundSettings(f=setting.f, empty_bundle=empty))
    return replace(settings, bundle_rule=setting.rule, record_rounds=True)


def _row(run: Done) -> Row:
    liar = run.cell.labels["liar"]
    own = [app.completion_s / 3600.0 for app in run.record.apps if app.name == liar]
    others = [app.completion_s / 3600.0 for app in run.record.apps if app.name != liar]
    everybody = mean([*own, *others])
    shares = [each.shares[str(liar)] for each in run.record.rounds if liar in each.proportional]
    return {
        **run.cell.labels,
        _LIAR: own[0],
        _OTHERS: mean(others),
        _ALL: everybody,
        _KEPT: mean(shares) if shares else 1.0,
        **run_metrics(run.record),
    }


def _changes(rows: Sequence[Row], share: float, column: str, honest: str = "") -> Summary:
    """`column` if the app lies by `share`, over `honest` (the same column if empty) if it does not.

    Computed run by run; the mean over the liars of a seed, then statistics over seeds.
    """
    by_seed = [
        mean(
            float(row[column]) / float(truth[honest or column])
            for row in sweeps.where(rows, lie_percent=share, seed=seed)
            for truth in sweeps.where(rows, lie_percent=0, seed=seed, liar=row["liar"])
        )
        for seed in sweeps.axis(rows, "seed")
    ]
    return summary(by_seed)


def tipping_point(rows: Sequence[Row]) -> float:
    """The smallest X in percent from which on the lie makes the liar's completion time longer by a twentieth.

    Nan if none.
    """
    tipping = math.nan
    for share in reversed(sweeps.axis(rows, "lie_percent")):
        if not share or _changes(rows, share, _LIAR).median < 1.0 + _LOSS:
            break
        tipping = share
    return tipping


def _lines(rows: Sequence[Row], where: str) -> list[Comparison]:
    tipping = tipping_point(rows)
    shares = [share for share in sweeps.axis(rows, "lie_percent") if share]
    kept = _by_seed(rows, shares[-1], _KEPT)
    best = min(shares, key=lambda share: _changes(rows, share, _LIAR).median)
    return [
        sweeps.line(f"completion time without a lie (h), {where}", sweeps.over_seeds(rows, _LIAR, lie_percent=0)),
        sweeps.line(
            f"liar's completion time / without a lie, its best X, {where}",
            _changes(rows, best, _LIAR),
            paper="no less",
            number=1.0,
            remark=f"at X = {best:g} %{_gain(_changes(rows, best, _LIAR).median)}.",
        ),
        sweeps.line(
            f"liar's completion time / without a lie, X = {shares[-1]:g} %, {where}",
            _changes(rows, shares[-1], _LIAR),
            paper="far more",
            remark=_beyond(_changes(rows, shares[-1], _LIAR).median),
        ),
        sweeps.line(
            f"liar's completion time / mean of all apps without a lie, X = {shares[-1]:g} %, {where}",
            _changes(rows, shares[-1], _LIAR, _ALL),
        ),
        sweeps.line(
            f"truthful apps' completion time / without a lie, X = {shares[-1]:g} %, {where}",
            _changes(rows, shares[-1], _OTHERS),
            paper="less",
            remark=_others(rows, shares[-1]),
        ),
        sweeps.line(f"mean share c that the liar keeps of its wins, X = {shares[-1]:g} %, {where}", kept),
        Comparison(
            what=f"X from which on lying costs the liar {_LOSS:.0%} (%), {where}",
            paper=f"{PAPER_TIPPING:g}",
            paper_value=PAPER_TIPPING,
            ours=tipping,
            remark=_tipping(tipping, shares),
        ),
    ]


def _claim(rows: Sequence[Row]) -> PaperClaim:
    gains = []
    for setting in SETTINGS:
        chosen = _of(rows, setting)
        factors = [_changes(chosen, share, _LIAR).median for share in sweeps.axis(chosen, "lie_percent") if share]
        gains.append(f"{setting.title}: {(min(factors) - 1.0) * 100.0:+.0f} to {(max(factors) - 1.0) * 100.0:+.0f} %")
    return PaperClaim(
        paper=f"lying about S does not pay below {PAPER_TIPPING:g} %, and costs sharply beyond (fig18)",
        here=f"the liar's completion time, by X: {'; '.join(gains)}",
    )


def _gain(factor: float) -> str:
    return f", where the lie gains {1.0 - factor:.1%}" if factor < 0.99 else ", which is no gain"


def _beyond(factor: float) -> str:
    if factor < 0.99:
        return f"here the liar gains {1.0 - factor:.1%}."
    return "" if factor > 1.0 + _LOSS else "no sharp loss here."


def _others(rows: Sequence[Row], share: float) -> str:
    """A sentence if the lie does not shorten the truthful apps' completion times: who gains by it, if anyone."""
    liar, others, everybody = (_changes(rows, share, column).median for column in (_LIAR, _OTHERS, _ALL))
    if others < 0.99:
        return ""
    size = "alike within 1 %" if others <= 1.01 else f"longer by {others - 1.0:.1%}"
    mean_change = f"the mean of all apps changes by {(everybody - 1.0) * 100.0:+.1f} %"
    if liar < 0.99:
        return sentence(f"{size}: here the liar gains {1.0 - liar:.1%}, and they give way to it", mean_change)
    if liar <= 1.0 + _LOSS:
        return sentence(f"{size}: here is no sharp loss of the liar from which they could gain", mean_change)
    return sentence(f"{size}, although the liar loses {liar - 1.0:.1%}", mean_change, NOT_KNOWN)


def _tipping(tipping: float, shares: Sequence[float]) -> str:
    if math.isnan(tipping):
        return "lying never costs the liar that much."
    if not differs(tipping, PAPER_TIPPING):
        return ""
    before = max((share for share in shares if share < tipping), default=0.0)
    if before < PAPER_TIPPING < tipping:
        return f"X was not tried between {before:g} and {tipping:g} %."
    return sentence(side(tipping, PAPER_TIPPING), NOT_KNOWN)


def _panel(axes: Axes, rows: Sequence[Row]) -> None:
    xs = sweeps.axis(rows, "lie_percent")
    values = {
        "lying app": [_by_seed(rows, share, _LIAR) for share in xs],
        "truthful apps, mean": [_by_seed(rows, share, _OTHERS) for share in xs],
    }
    lines(axes, xs, values, "lie X, %", "completion time, hours")
    axes.set_xlim(-3.0, 103.0)
    axes.axvline(PAPER_TIPPING, color="#7f8c8d", linewidth=0.9, linestyle=":")


def _by_seed(rows: Sequence[Row], share: float, column: str) -> Summary:
    """The mean over the liars of a seed, then statistics over seeds."""
    seeds = sweeps.axis(rows, "seed")
    return summary(
        mean(float(row[column]) for row in sweeps.where(rows, lie_percent=share, seed=seed)) for seed in seeds
    )


def _remarks(rows: Sequence[Row]) -> tuple[str, ...]:
    level = model_named(MODEL).slowdown
    kept = ", ".join(f"{each.title} {_by_seed(_of(rows, each), 0, _KEPT).median:.2g}" for each in SETTINGS)
    # A run without a lie is a row for each app that could have lied.
    runs = {(row["setting"], row["seed"], row["lie_percent"], row["lie_percent"] and row["liar"]): row for row in rows}
    nothing = sum(float(row["wins_to_nothing"]) for row in runs.values())
    return (
        f"The apps are {MODEL} (S {level.rack:g} across the machines of a rack, {level.cluster:g} across racks, 1 on a "
        "machine); the paper does not say what its apps were, how many jobs they had or how long they ran. A lie "
        "multiplies S across machines by 1 + X; S on a machine is 1 and cannot be made to look smaller.",
        "Identical apps may end at different times even without a lie: random draws and ties decide which app gets the "
        "large machine. So the liar is compared with itself when it does not lie, and with the mean of all apps then.",
        f"What an honest app keeps of its wins, mean c: {kept}. Where a bundle counts for one lease only, taking the "
        "large machine from others costs them little, so the payment for it is small, and a lie that wins it pays.",
        "Several apps a seed are the liar in turn; numbers are means over the liars, and medians over seeds. "
        f"Wins that payments reduced to nothing, in all {len(runs)} runs: {nothing:g}.",
    )


EXPERIMENT = StrategicLie()
