"""How fair policies are by the fluid fair cluster, which no schedule can change, and what their fairness costs.

Rho by the definitions of the papers depends on the schedule, so it cannot rank policies (docs/explanation/fairness.md).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from themis.rho import HEADLINE
from themis.values import Value
from themis_lab.paper.plans import Load, make_workload, policies, settings_of, workload_arguments
from themis_lab.paper.plotting import cdf_lines, colour_of, fair_line, legend_below, plain_log_axis
from themis_lab.paper.port import Cell, Done, Findings, Scale
from themis_lab.paper.report_frame import number_text
from themis_lab.paper.statistics import UNFAIR_RHO, Row, grouped, mean, median, numbers, paired_ratios
from themis_lab.simulator.compare import RANKED_BY, ratios_by_seed
from themis_lab.simulator.metrics import share_over

FIRST_SEED = 101
"""Seeds below this one were used to design policies."""

OURS = "fair_finish"
EFFICIENT, REFERENCE = "srtf", "themis"
_HOUR_S = 3600.0
_RIGID: Mapping[str, object] = {"rigid": True}


class Case(Value, frozen=True, kw_only=True):
    """A workload and its cluster. In rigid workloads every job needs all its GPUs or none."""

    name: str
    load: Load
    cluster: str = "testbed"


CASES: Mapping[Scale, Sequence[Case]] = {
    Scale.QUICK: (
        Case(name="w1-small", load=Load(name="w1-small", options={})),
        Case(name="w2-small", load=Load(name="w2-small", options={})),
        Case(name="w1-small, rigid", load=Load(name="w1-small", options=_RIGID)),
        Case(name="w2-small, rigid", load=Load(name="w2-small", options=_RIGID)),
        Case(name="120 one-job apps", load=Load(name="gavel", options={"jobs": 120}), cluster="8x4"),
    ),
    Scale.PAPER: (
        Case(name="w1", load=Load(name="w1", options={})),
        Case(name="w2", load=Load(name="w2", options={})),
        Case(name="w1, rigid", load=Load(name="w1", options=_RIGID)),
        Case(name="w2, rigid", load=Load(name="w2", options=_RIGID)),
        Case(name="460 one-job apps", load=Load(name="gavel", options={"jobs": 460}), cluster="32x4"),
    ),
}

HEADINGS = (
    "workload and policy",
    "ratio, median",
    "ratio, worst",
    f"apps with rho over {UNFAIR_RHO}",
    f"completion / {EFFICIENT}",
    f"GPU time / {REFERENCE}",
    f"restarts / {REFERENCE}",
)


class FluidFairness(Value, frozen=True, kw_only=True):
    """The paper's policies, our own baselines and `fair_finish` on several workloads."""

    name: str = "fairness"
    title: str = "fairness by the fluid fair cluster, and its cost"

    def cells(self, scale: Scale, seeds: int) -> Sequence[Cell]:
        """A run for each workload, seed and policy."""
        return [
            Cell(
                labels={"workload": case.name, "policy": policy, "seed": seed},
                make_workload=make_workload,
                workload_arguments=workload_arguments(case.load, seed, case.cluster),
                settings=settings_of(case.cluster, policy, seed),
            )
            for case in CASES[scale]
            for seed in range(FIRST_SEED, FIRST_SEED + seeds)
            for policy in (OURS, *policies())
        ]

    def evaluate(self, done: Sequence[Done]) -> Findings:
        """Return a row per app, and a table with a line per workload and policy, the fairest policy first."""
        rows = tuple(
            {
                **run.cell.labels,
                "app": app.name,
                **{f"rho_{name}": app.rho[name] for name in (HEADLINE, *RANKED_BY)},
                "completion_s": app.completion_s,
                "gpu_time_s": app.gpu_time_s,
                "restarts": app.restarts,
            }
            for run in done
            for app in run.record.apps
        )
        lines = [line for of_workload in _by_workload(rows).values() for line in _lines(of_workload)]
        return Findings(rows=rows, comparisons=(), table=(HEADINGS, *lines), remarks=_remarks(rows))

    def draw(self, findings: Findings) -> Figure:
        """Draw three panels for each workload: ratio by seed, completion times, and rho of the worst apps."""
        workloads = _by_workload(findings.rows)
        figure = Figure(figsize=(13.5, 0.6 + 2.7 * len(workloads)), layout="constrained")
        panels = figure.subplots(len(workloads), 3, squeeze=False)
        for (ratios, completions, rhos), (name, rows) in zip(panels, workloads.items(), strict=True):
            ratios.set_title(name, loc="left")
            _draw_ratios(ratios, rows)
            by_policy = _ours_last(rows)
            hours = {policy: [s / _HOUR_S for s in numbers(own, "completion_s")] for policy, own in by_policy.items()}
            cdf_lines(completions, hours, "completion time (h)", log=True)
            _draw_worst(rhos, {policy: numbers(own, f"rho_{HEADLINE}") for policy, own in by_policy.items()})
            for axes in (completions, rhos):
                for line in axes.lines:
                    line.set_linewidth(2.2 if line.get_label() == OURS else 1.1)
        legend_below(figure, 10, axes=panels[0][1])
        return figure


def _by_workload(rows: Sequence[Row]) -> dict[str, list[Row]]:
    return {str(name): own for (name,), own in grouped(rows, "workload").items()}


def _ours_last(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """The rows of each policy, in the order in which they are drawn."""
    by_policy = {str(name): own for (name,), own in grouped(rows, "policy").items()}
    return dict(sorted(by_policy.items(), key=lambda item: item[0] == OURS))


def ratios_of(rows: Sequence[Row]) -> dict[str, dict[float, float]]:
    """`ratios_by_seed` of the apps of one workload."""
    return ratios_by_seed(
        {
            "policy": policy,
            "seed": seed,
            "max_rho": {name: max(numbers(apps, f"rho_{name}")) for name in RANKED_BY},
        }
        for (policy, seed), apps in grouped(rows, "policy", "seed").items()
    )


def _runs(rows: Sequence[Row]) -> list[Row]:
    """A row per run: mean completion time, GPU time and restarts."""
    return [
        {
            "policy": policy,
            "seed": seed,
            "completion_s": mean(numbers(apps, "completion_s")),
            "gpu_time_s": sum(numbers(apps, "gpu_time_s")),
            "restarts": sum(numbers(apps, "restarts")),
        }
        for (policy, seed), apps in grouped(rows, "policy", "seed").items()
    ]


def _lines(rows: Sequence[Row]) -> list[tuple[str, ...]]:
    """The table's lines of one workload."""
    ratios, runs, by_policy = ratios_of(rows), _runs(rows), _ours_last(rows)
    order = sorted(ratios, key=lambda name: (median(ratios[name].values()), max(ratios[name].values()), name))

    def relative(policy: str, column: str, other: str) -> float:
        pairs = paired_ratios(runs, column, lambda run: run["policy"] == policy, lambda run: run["policy"] == other)
        return mean(pairs)

    return [
        (
            f"{rows[0]['workload']}: {policy}",
            f"{median(ratios[policy].values()):.2f}",
            f"{max(ratios[policy].values()):.2f}",
            f"{share_over(numbers(by_policy[policy], f'rho_{HEADLINE}'), UNFAIR_RHO):.0%}",
            f"{relative(policy, 'completion_s', EFFICIENT):.2f}",
            f"{relative(policy, 'gpu_time_s', REFERENCE):.2f}",
            f"{relative(policy, 'restarts', REFERENCE):.2f}",
        )
        for policy in order
    ]


def _remarks(rows: Sequence[Row]) -> tuple[str, ...]:
    seeds = sorted({int(row["seed"]) for row in rows})
    return (
        "The ratio is a policy's max rho over the smallest max rho of the other policies of the seed, by "
        f"{' or '.join(f'`{name}`' for name in RANKED_BY)}, whichever is larger; a max rho below 1 counts as 1. No "
        "single policy is best by both definitions and for every seed, so a ratio of 1 is rarely reached.",
        f"Apps with rho over {UNFAIR_RHO} are those by `{HEADLINE}`. Completion time, GPU time and restarts are "
        "ratios of runs with the same seed, their mean over seeds.",
        f"Seeds {number_text(seeds[0])} to {number_text(seeds[-1])}. Two rules of `fair_finish` were chosen on some.",
    )


# ---- the panels -----------------------------------------------------------------------------------------------------


def _draw_ratios(axes: Axes, rows: Sequence[Row]) -> None:
    """A dot per policy and seed, and a bar at the median."""
    ratios = ratios_of(rows)
    names = sorted(ratios, key=lambda name: median(ratios[name].values()))
    for place, name in enumerate(names):
        values = list(ratios[name].values())
        axes.plot([place] * len(values), values, "o", color=colour_of(name, place), markersize=4, alpha=0.6)
        axes.plot((place - 0.3, place + 0.3), [median(values)] * 2, "-", color=colour_of(name, place), linewidth=2.2)
    axes.set_yscale("log")
    plain_log_axis(axes, "y")
    axes.set_xticks(range(len(names)), names, rotation=30, ha="right")
    axes.set_ylabel("ratio to the best policy")
    axes.grid(axis="y")


def _draw_worst(axes: Axes, series: Mapping[str, Sequence[float]]) -> None:
    """The mean rho of the worst share of the apps: at the left the largest rho, at the right the mean of all.

    It is a Lorenz curve that is read from the worst-off apps, and not divided by the mean.
    """
    for place, (name, values) in enumerate(series.items()):
        worst_first, total, means = sorted(values, reverse=True), 0.0, []
        for count, value in enumerate(worst_first, start=1):
            total += value
            means.append(total / count)
        shares = [count / len(means) for count in range(1, len(means) + 1)]
        axes.plot(shares, means, label=name, color=colour_of(name, place))
    fair_line(axes)
    axes.set_yscale("log")
    plain_log_axis(axes, "y")
    axes.set(xlabel="share of apps, the worst first", ylabel=f"their mean rho ({HEADLINE})", xlim=(0.0, 1.0))
    axes.grid(visible=True)


EXPERIMENT = FluidFairness()
