"""What an app gains by wrong speeds on three types of GPUs, and whether measuring them prevents it.

One app of a workload has wrong speeds on the type on which it is fastest; all others are honest. Either its app master
lies in every report and bid, or its user states the speeds wrongly and the app master reports what it measures.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from matplotlib.figure import Figure
from msgspec.structs import replace

from rm_plugin.arbiter.round_values import RoundSettings
from themis.values import Value
from themis_lab.paper.lying import standard_error
from themis_lab.paper.mixed import three_type_apps
from themis_lab.paper.plans import settings_of
from themis_lab.paper.plotting import COLOURS, GRID, INK, new_figure
from themis_lab.paper.port import Cell, Done, Findings, Scale
from themis_lab.paper.runner import run_cell
from themis_lab.paper.statistics import Row, grouped, mean, numbers
from themis_lab.paper.strategies import lying_agent
from themis_lab.simulator.record import RunRecord

CLUSTER = "mixed-3"
FACTORS = (0.5, 2.0)
_APPS: Mapping[Scale, int] = {Scale.QUICK: 30, Scale.PAPER: 150}
_LIARS = 3
"""Apps that are wrong, one per run, on each workload."""

LIES: Mapping[str, str] = {
    "speed": "its app master lies in every round",
    "stated_speed": "its user states it, until a job has run on two types",
}
"""The lies of the simulator, and how the table names them."""

_PROFILED = "the same, with profiling runs"
_HONEST = "none"

_LEAST_SHOWN = -40.0
"""Percent at which the figure cuts a longer bar and states its value. One of -150 % would hide all others."""


class Contender(Value, frozen=True, kw_only=True):
    """A policy, and whether it makes profiling runs."""

    policy: str
    profiling_runs: bool = False


CONTENDERS = (
    Contender(policy="oef"),
    Contender(policy="oef", profiling_runs=True),
    Contender(policy="oef_noncooperative"),
    Contender(policy="oef_noncooperative", profiling_runs=True),
    Contender(policy="themis"),
    Contender(policy="fair_finish"),
)


class MisstatedSpeeds(Value, frozen=True, kw_only=True):
    """One app is wrong about its fastest speed: its gain, and the loss of the others."""

    name: str = "mixed_misstated_speeds"
    title: str = "what wrong speeds gain on three types of GPUs"

    def cells(self, scale: Scale, seeds: int) -> list[Cell]:
        """Each lie by each of several apps, and an honest run for each policy and seed."""
        return [
            cell
            for contender in CONTENDERS
            for seed in range(1, seeds + 1)
            for cell in _cells_of(contender, seed, _APPS[scale])
        ]

    def run(self, scale: Scale, seeds: int) -> Findings:
        """Make the runs, one after the other."""
        return self.evaluate([Done(cell=cell, record=run_cell(cell)) for cell in self.cells(scale, seeds)])

    def evaluate(self, done: Sequence[Done]) -> Findings:
        """A row per lie, and a table of mean gains."""
        honest = {_honest_key(run): run.record for run in done if run.cell.labels["lie"] == _HONEST}
        rows = tuple(_row(run, honest[_honest_key(run)]) for run in done if run.cell.labels["lie"] != _HONEST)
        return Findings(rows=rows, comparisons=(), table=_table(rows), remarks=_REMARKS)

    def draw(self, findings: Findings) -> Figure:
        """Draw the mean gain of each policy and case with its standard error, a panel per factor.

        Long losses are cut, and labelled with their value.
        """
        cases = list(grouped(findings.rows, "policy", "case"))
        figure = new_figure(len(FACTORS), width=10.0, height=1.2 + 0.32 * len(cases), sharey=True)
        for axes, factor in zip(figure.axes, FACTORS, strict=True):
            chosen = grouped([row for row in findings.rows if row["factor"] == factor], "policy", "case")
            for place, (policy, case) in enumerate(cases):
                gains = numbers(chosen[policy, case], "gain_percent")
                axes.barh(place, mean(gains), 0.7, color=COLOURS.get(str(policy), GRID))
                axes.errorbar(mean(gains), place, xerr=standard_error(gains), fmt="none", ecolor=INK, elinewidth=0.7)
                if mean(gains) < _LEAST_SHOWN:
                    # On white, because the error bar may cross the bar's end.
                    box = {"facecolor": "white", "edgecolor": "none", "pad": 1.0}
                    text = f"{mean(gains):.0f} %, cut"
                    axes.text(0.97 * _LEAST_SHOWN, place, text, fontsize=7, color=INK, va="center", bbox=box)
                    axes.set_xlim(left=_LEAST_SHOWN)
            axes.axvline(0.0, color=INK, linewidth=0.8)
            axes.set_xlabel(f"completion time gained, %: x{factor:g}")
        figure.axes[0].set_yticks(range(len(cases)), [f"{policy}: {case}" for policy, case in cases])
        figure.axes[0].invert_yaxis()
        return figure


def _cells_of(contender: Contender, seed: int, apps: int) -> list[Cell]:
    # The next seed uses other apps.
    liars = [f"app-{((seed - 1) * _LIARS + turn) * 3 % apps:03}" for turn in range(_LIARS)]
    kinds = ["stated_speed"] if contender.profiling_runs else list(LIES)
    honest = Cell(
        labels={"policy": contender.policy, "lie": _HONEST, "case": "", "factor": 1.0, "seed": seed, "liar": ""},
        make_workload=three_type_apps,
        workload_arguments={"seed": seed, "apps": apps},
        settings=settings_of(
            CLUSTER, contender.policy, seed, rounds=RoundSettings(profiling_runs=contender.profiling_runs)
        ),
    )
    return [
        honest,
        *(
            replace(
                honest,
                labels={
                    **honest.labels,
                    "lie": kind,
                    "case": _PROFILED if contender.profiling_runs else LIES[kind],
                    "factor": factor,
                    "liar": liar,
                },
                make_agent=lying_agent,
                agent_arguments={"liar": liar, "lie": kind, "amount": factor},
            )
            for kind in kinds
            for factor in FACTORS
            for liar in liars
        ),
    ]


def _honest_key(run: Done) -> tuple[str | float, str | float, bool]:
    labels = run.cell.labels
    return labels["policy"], labels["seed"], run.cell.settings.rounds.profiling_runs


def _row(run: Done, honest: RunRecord) -> Row:
    before = {app.name: app.completion_s for app in honest.apps}
    added = {app.name: (app.completion_s / before[app.name] - 1.0) * 100.0 for app in run.record.apps}
    gain = -added.pop(str(run.cell.labels["liar"]))
    return {**run.cell.labels, "gain_percent": gain, "others_percent": mean(added.values())}


def _table(rows: Sequence[Row]) -> tuple[tuple[str, ...], ...]:
    headings = [f"{what}, x{factor:g} (%)" for factor in FACTORS for what in ("its gain", "others' loss")]
    lines = []
    for (policy, case), group in grouped(rows, "policy", "case").items():
        texts = []
        for factor in FACTORS:
            chosen = [row for row in group if row["factor"] == factor]
            gains = numbers(chosen, "gain_percent")
            texts += [
                f"{mean(gains):+.1f} ± {standard_error(gains):.1f}",
                f"{mean(numbers(chosen, 'others_percent')):+.1f}",
            ]
        lines.append((str(policy), str(case), *texts))
    return ("policy", "the speed is wrong because", *headings), *lines


_REMARKS = (
    "One app per run is wrong about its speed on the type on which it is fastest, by the factor in the heading; three "
    "apps for each seed, one after the other. Gains and losses are in percent of the completion time in the same run "
    "with right speeds, means with their standard errors.",
    "Profiling runs are compared with honest runs that make them too: the time that they take is no loss here.",
)

EXPERIMENT = MisstatedSpeeds()
