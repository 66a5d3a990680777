"""Whether lying pays over whole runs, under themis and under policies without an auction."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from rm_plugin.arbiter.round_values import RoundSettings
from rm_plugin.policies.registry import POLICIES
from themis.choices import LeftoverOrder, Rounding
from themis.values import Value
from themis_lab.paper import sweeps
from themis_lab.paper.plans import make_workload, settings_of
from themis_lab.paper.plotting import COLOURS, GRID, INK, legend_below, new_figure
from themis_lab.paper.port import Cell, Comparison, Done, Findings, PaperClaim, Scale
from themis_lab.paper.statistics import Row, Summary, grouped, mean, numbers, run_metrics, summary
from themis_lab.paper.strategies import lie_of, lying_agent
from themis_lab.simulator.record import AppOutcome, RunRecord

CLUSTER = "4x2+6x4"
"""Half of the testbed."""

APPS = 8
OPTIONS: Mapping[str, object] = {"apps": APPS, "jobs": 4, "load": 2.0, "task_gpu_s": 3600.0, "sigma": 0.7}
"""Apps that always compete: twice as much work arrives as the cluster can do. Small apps keep runs short."""


class Contender(Value, frozen=True, kw_only=True):
    """A policy with its settings, and the lies that affect it."""

    name: str
    policy: str
    rounds: RoundSettings = RoundSettings()
    lies: tuple[str, ...]


IN_BIDS, IN_REPORTS, IN_BOTH = "bids", "reports", "both at once"

CONTENDERS = (
    Contender(name="themis", policy="themis", lies=("rho", "work", "rows", "largest_row", "throughout", "strictness")),
    Contender(
        name="themis, f = 0",
        policy="themis",
        rounds=RoundSettings(f=0.0),
        lies=("work", "rows", "largest_row"),
    ),
    Contender(
        name="themis, f = 0, no payments",
        policy="themis",
        rounds=RoundSettings(f=0.0, payments=False),
        lies=("rows",),
    ),
    Contender(
        name="themis, f = 0, capped",
        policy="themis",
        rounds=RoundSettings(f=0.0, rounding=Rounding.CAPPED),
        lies=("rows",),
    ),
    Contender(
        name="themis, shortest leftovers",
        policy="themis",
        rounds=RoundSettings(leftovers=LeftoverOrder.SHORTEST),
        lies=("work",),
    ),
    Contender(name="worst_rho_first", policy="worst_rho_first", lies=("rho", "work")),
    Contender(name="gandiva", policy="gandiva", lies=("strictness",)),
    Contender(name="optimus", policy="optimus", lies=("strictness",)),
    Contender(name="slaq", policy="slaq", lies=("loss",)),
    Contender(name="srtf", policy="srtf", lies=("work",)),
    Contender(name="srsf", policy="srsf", lies=("work",)),
    Contender(name="fair_finish", policy="fair_finish", lies=("work", "strictness", "demand", "phases", "restarts")),
)
"""With f = 0 all apps bid in every auction, and no report decides who bids: this tests the auction alone.

Tiresias and drf use what the arbiter itself measures, so these lies do not affect them. OEF and its baselines
use speeds, which are the same for all jobs on this cluster.
"""

FACTORS: Mapping[Scale, Sequence[float]] = {Scale.QUICK: (0.5, 2.0, 4.0), Scale.PAPER: (0.5, 0.8, 1.25, 2.0, 4.0)}
LIARS: Mapping[Scale, int] = {Scale.QUICK: 3, Scale.PAPER: APPS}
"""Number of apps that lie, one per run, on each workload."""

HONEST = "none"
_PAYS = 0.01


class LyingOverRuns(Value, frozen=True, kw_only=True):
    """One app lies in every round of its life: its gain, and the loss of the others."""

    name: str = "lying"
    title: str = "what an app gains by lying in every round, and what it costs the others"

    def cells(self, scale: Scale, seeds: int) -> Sequence[Cell]:
        """Each lie by each of several apps, and an honest run per seed."""
        return [
            cell
            for contender in CONTENDERS
            if contender.policy in POLICIES
            for seed in range(1, seeds + 1)
            for cell in _cells_of(contender, seed, scale)
        ]

    def evaluate(self, done: Sequence[Done]) -> Findings:
        """Return rows of lies: the gain of the liar and the change of the others, against the run without the lie."""
        honest = {_run_key(run): run.record for run in done if run.cell.labels["lie"] == HONEST}
        rows = tuple(_row(run, honest[_run_key(run)]) for run in done if run.cell.labels["lie"] != HONEST)
        compared = [*_best_lies(rows), *_each_lie(rows)]
        return Findings(
            rows=rows,
            comparisons=tuple(compared),
            remarks=_remarks(rows),
            claims=_claims(rows),
            causes=(_cause(rows),) if rows else (),
        )

    def draw(self, findings: Findings) -> Figure:
        """Draw the liar's mean gain with its standard error, and the change of the others, for each lie and policy."""
        rows = findings.rows
        figure = new_figure(2, width=11.0, height=7.4)
        for axes, column, label in zip(
            figure.axes,
            ("gain_percent", "others_percent"),
            ("liar's completion time gained, %", "others' completion time added, %"),
            strict=True,
        ):
            _bars(axes, rows, column)
            axes.set_xlabel(label)
        legend_below(figure, (len(CONTENDERS) + 1) // 2)
        return figure


def _cells_of(contender: Contender, seed: int, scale: Scale) -> list[Cell]:
    # The next seed uses other apps, so that a few seeds cover them all.
    liars = [_liar(((seed - 1) * LIARS[scale] + turn) % APPS) for turn in range(LIARS[scale])]
    lies = [(lie, factor, liar) for lie in contender.lies for factor in FACTORS[scale] for liar in liars]
    return [_cell(contender, seed, *choice) for choice in [(HONEST, 1.0, ""), *lies]]


def _liar(place: int) -> str:
    return f"app-{place:03d}"


def _cell(contender: Contender, seed: int, lie: str, factor: float, liar: str) -> Cell:
    lies = lie != HONEST
    return Cell(
        labels={"policy": contender.name, "lie": lie, "factor": factor, "seed": seed, "liar": liar},
        make_workload=make_workload,
        workload_arguments={
            "name": "synthetic",
            "seed": seed,
            "cluster": CLUSTER,
            "options": tuple(sorted(OPTIONS.items())),
        },
        settings=settings_of(CLUSTER, contender.policy, seed, rounds=contender.rounds),
        make_agent=lying_agent if lies else None,
        agent_arguments={"liar": liar, "lie": lie, "amount": factor} if lies else {},
    )


def _run_key(run: Done) -> tuple[str | float, str | float]:
    return run.cell.labels["policy"], run.cell.labels["seed"]


def _row(run: Done, honest: RunRecord) -> Row:
    labels = run.cell.labels
    before = {app.name: app for app in honest.apps}
    liar = next(app for app in run.record.apps if app.name == labels["liar"])
    others = [app for app in run.record.apps if app is not liar]
    return {
        **labels,
        "gain_percent": -_change(liar, before),
        "gain_rho_percent": (1.0 - liar.rho["themis"] / before[liar.name].rho["themis"]) * 100.0,
        "others_percent": mean(_change(app, before) for app in others),
        "worst_other_percent": max(_change(app, before) for app in others),
        "others_max_rho": max(app.rho["themis"] for app in others),
        "others_max_rho_before": max(before[app.name].rho["themis"] for app in others),
        "liar_completion_s": liar.completion_s,
        "liar_completion_before_s": before[liar.name].completion_s,
        **run_metrics(run.record),
    }


def _change(app: AppOutcome, before: Mapping[str, AppOutcome]) -> float:
    """Growth of an app's completion time in percent."""
    return (app.completion_s / before[app.name].completion_s - 1.0) * 100.0


def _lie_groups(rows: Sequence[Row]) -> dict[tuple[str, str, float], list[Row]]:
    return {
        (str(policy), str(lie), float(factor)): group
        for (policy, lie, factor), group in grouped(rows, "policy", "lie", "factor").items()
    }


def standard_error(values: Sequence[float]) -> float:
    """Standard error of the mean; 0 for fewer than two values."""
    if len(values) < 2:
        return 0.0
    middle = mean(values)
    return math.sqrt(math.fsum((value - middle) ** 2 for value in values) / (len(values) - 1) / len(values))


def _best_lies(rows: Sequence[Row]) -> list[Comparison]:
    """For each policy the lie with the largest mean gain, over the apps that may use it."""
    lines = []
    for policy in _policies(rows):
        groups = {key: group for key, group in _lie_groups(rows).items() if key[0] == policy}
        (_, lie, factor), group = max(groups.items(), key=lambda item: mean(numbers(item[1], "gain_percent")))
        gain, error = mean(numbers(group, "gain_percent")), standard_error(numbers(group, "gain_percent"))
        verdict = "lying pays" if gain > 2.0 * error and gain > 100 * _PAYS else "no gain that stands out"
        lines.append(
            Comparison(
                what=f"gain of the best lie, completion time, {policy} (%)",
                paper="no gain" if policy.startswith(sweeps.OURS) else "",
                ours=gain,
                spread=_by_seed(group, "gain_percent").spread,
                remark=f"{_words(lie)} times {factor:g}, standard error {error:.2g} over {len(group)} liars; {verdict}."
                f" The others take {mean(numbers(group, 'others_percent')):+.2g} %.",
            )
        )
    return lines


def _each_lie(rows: Sequence[Row]) -> list[Comparison]:
    lines = []
    for (policy, lie, factor), group in _lie_groups(rows).items():
        gains = numbers(group, "gain_percent")
        winners = mean(float(gain > 100 * _PAYS) for gain in gains)
        losers = mean(float(gain < -100 * _PAYS) for gain in gains)
        lines.append(
            Comparison(
                what=f"gain by {_words(lie)} times {factor:g}, {policy} (%)",
                ours=mean(gains),
                spread=_by_seed(group, "gain_percent").spread,
                remark=f"{winners:.0%} of the liars gain more than {_PAYS:.0%}, {losers:.0%} lose more; in rho "
                f"{mean(numbers(group, 'gain_rho_percent')):+.2g} %; the others take "
                f"{mean(numbers(group, 'others_percent')):+.2g} %.",
            )
        )
    return lines


def _claims(rows: Sequence[Row]) -> tuple[PaperClaim, ...]:
    gains = {policy: _gains_by_place(rows, policy).get(IN_BIDS) for policy in _policies(rows)}
    texts = [f"{policy} {gain:+.1f} %" for policy, gain in gains.items() if gain is not None]
    return (
        PaperClaim(
            paper="hidden payments make the truth the best bid (lying)",
            here=f"mean gain in completion time of the best lie in bids alone: {', '.join(texts) or 'no app lied'}",
        ),
    )


def _cause(rows: Sequence[Row]) -> str:
    texts = [
        f"{policy} {' and '.join(f'in {place} {gain:+.1f} %' for place, gain in _gains_by_place(rows, policy).items())}"
        for policy in _policies(rows)
    ]
    return (
        "**What the auction buys.** The best lie, repeated in every round of an app's life, shortens its "
        f"completion time on average by: {'; '.join(texts)}. Payments guard bids. Nothing guards reports, from which "
        "the filter chooses the bidders and the other policies choose the apps to serve. With f = 0 every app bids "
        "whatever it reports, so a lie in both at once acts as a lie in bids."
    )


def _policies(rows: Sequence[Row]) -> list[str]:
    return list(dict.fromkeys(str(row["policy"]) for row in rows))


def _gains_by_place(rows: Sequence[Row], policy: str) -> dict[str, float]:
    """Mean gain in percent of the best lie under a policy, by the message that carries the lie.

    Omits messages without lies.
    """
    gains: dict[str, float] = {}
    for (name, lie, _), group in _lie_groups(rows).items():
        if name == policy:
            place, gain = carrier_of(lie, policy), mean(numbers(group, "gain_percent"))
            gains[place] = max(gain, gains.get(place, gain))
    return {place: gains[place] for place in (IN_BIDS, IN_REPORTS, IN_BOTH) if place in gains}


def carrier_of(lie: str, policy: str) -> str:
    """Which messages to a policy carry a lie of this kind. Only themis asks for bids."""
    kind = lie_of(lie, 1.0)
    if not policy.startswith(sweeps.OURS) or not kind.in_bids:
        return IN_REPORTS
    return IN_BOTH if kind.in_reports else IN_BIDS


def _by_seed(rows: Sequence[Row], column: str) -> Summary:
    return summary(mean(numbers(group, column)) for group in grouped(rows, "seed").values())


def _remarks(rows: Sequence[Row]) -> tuple[str, ...]:
    texts = []
    for policy in _policies(rows):
        paying = [
            f"{_words(lie)} times {factor:g}"
            for (name, lie, factor), group in _lie_groups(rows).items()
            if name == policy and _stands_out(numbers(group, "gain_percent"))
        ]
        texts.append(
            f"Under {policy} these lies gain more than {_PAYS:.0%} and more than twice their standard error: "
            f"{', '.join(paying)}."
            if paying
            else f"Under {policy} no lie gains more than {_PAYS:.0%} and more than twice its standard error."
        )
    return (
        *texts,
        "Several apps lie, one per run, each in every round of its life; all others are honest. A gain is in percent "
        "of the completion time in the same run without the lie. From the fourth round at the same time on, a liar is "
        "honest: otherwise its lie would repeat such rounds without end. Many lies are tried, so a few stand out by "
        "chance.",
        "Hidden payments guard the auction, not the filter before it: with f above 0 the apps that report the worst "
        "rho are asked first. The paper argues that agents report what they have cached from their last bid; nothing "
        "makes a lying agent do so.",
        "Lies in rows do not reach policies without bids; tiresias and drf use what the arbiter measures. Gandiva and "
        "optimus use S, slaq uses forecasts of the loss: each receives the lie that affects it. "
        "Workload: synthetic, 8 searches, load 2, half of the testbed.",
    )


def _stands_out(gains: Sequence[float]) -> bool:
    return mean(gains) > max(100 * _PAYS, 2.0 * standard_error(gains))


# ---- the figure -----------------------------------------------------------------------------------------------------

_COLOURS: Mapping[str, str] = {
    **COLOURS,
    "themis, f = 0": "#e6a39b",
    "themis, f = 0, no payments": "#f3d5d1",
    "themis, f = 0, capped": "#b98a84",
    "themis, shortest leftovers": "#7d2a20",
}


_THICK = 0.3


def _bars(axes: Axes, rows: Sequence[Row], column: str) -> None:
    lies = list(dict.fromkeys((str(row["lie"]), float(row["factor"])) for row in rows))
    policies = _policies(rows)
    for group, (lie, factor) in enumerate(lies):
        chosen_rows = {policy: sweeps.where(rows, policy=policy, lie=lie, factor=factor) for policy in policies}
        values = {policy: numbers(chosen, column) for policy, chosen in chosen_rows.items() if chosen}
        height = 0.8 / len(values)
        for place, (policy, each) in enumerate(values.items()):
            at = group + (place - (len(values) - 1) / 2) * height
            axes.barh(at, mean(each), min(height, _THICK) * 0.9, color=_COLOURS.get(policy, INK))
            axes.errorbar(mean(each), at, xerr=standard_error(each), fmt="none", ecolor=INK, elinewidth=0.7)
    for policy in policies:
        axes.barh(0.0, 0.0, color=_COLOURS.get(policy, INK), label=policy)
    axes.set_yticks(range(len(lies)), [f"{_words(lie)} x{factor:g}" for lie, factor in lies])
    axes.set_ylim(len(lies) - 0.4, -0.6)
    axes.axvline(0.0, color=INK, linewidth=0.8)
    axes.grid(axis="x", color=GRID)


EXPERIMENT = LyingOverRuns()


def _words(lie: str) -> str:
    """A kind of lie as tables print it."""
    return lie.replace("_", " ")
