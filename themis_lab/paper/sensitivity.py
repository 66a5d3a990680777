"""Sensitivity of the results to assumptions about the paper's trace, changed one at a time.

The trace is not public, and the paper's statements about it are inconsistent (docs/reference/workloads.md). So parts of
the workloads are assumptions. Each variant changes one of them; none is more plausible than the others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from matplotlib.figure import Figure
from msgspec import field

from themis.choices import LeaseEnds
from themis.values import Value
from themis_lab.paper import sweeps
from themis_lab.paper.macro import CLUSTER, LOADS
from themis_lab.paper.plans import PAPER_POLICIES, Load, policy_cells
from themis_lab.paper.plotting import fair_line, grouped_bars, legend_below, new_figure
from themis_lab.paper.port import Cell, Comparison, Done, Findings, Scale
from themis_lab.paper.statistics import Row, grouped, numbers

AS_SHIPPED = "as shipped"
WORKLOADS = ("w1", "w2")


class Variant(Value, frozen=True, kw_only=True):
    """A workload with one assumption changed: a name, and the options that change it."""

    name: str
    workloads: tuple[str, ...] = WORKLOADS
    options: Mapping[str, object] = field(default_factory=dict)


VARIANTS = (
    Variant(name=AS_SHIPPED),
    Variant(name="50 GPUs wanted", options={"stretch": 3.6}),
    Variant(name="jobs of an app alike", workloads=("w1",), options={"job_spread": 1.0}),
    Variant(name="apps more alike", workloads=("w1",), options={"app_spread": 3.0}),
    Variant(name="all GPUs or none", options={"rigid": True}),
)
"""In workload 2 the jobs of an app are equal by default.

The paper states a mean demand of 50 GPUs, but its apps' work makes it 181. By default we keep the work; `50 GPUs
wanted` stretches the arrivals. `apps more alike`: the 5th and 95th percentiles are three times from the median, not
ten.
"""


class Sensitivity(Value, frozen=True, kw_only=True):
    """The paper's policies on variants of both workloads, on the testbed, with aligned lease ends."""

    name: str = "standins"
    title: str = "max rho by what stands in for the paper's trace"

    def cells(self, scale: Scale, seeds: int) -> Sequence[Cell]:
        """Every policy of the paper on each variant. Runs with default assumptions are those of figures 9 and 10."""
        return [
            cell
            for workload in WORKLOADS
            for variant in VARIANTS
            if workload in variant.workloads
            for cell in policy_cells(
                _load(scale, workload, variant),
                CLUSTER,
                seeds,
                names=PAPER_POLICIES,
                ends=(LeaseEnds.ALIGNED,),
                labels={"workload": workload, "variant": variant.name},
            )
        ]

    def evaluate(self, done: Sequence[Done]) -> Findings:
        """Return rows of runs. The comparison covers max rho by definition `themis`."""
        rows = sweeps.rows_of_runs(done)
        groups = grouped(rows, "workload", "variant")
        lines = [line for (workload, variant), group in groups.items() for line in _lines(group, workload, variant)]
        return Findings(
            rows=rows, comparisons=tuple(lines), remarks=(*_by_fluid(groups), _REMARK), causes=(_cause(groups),)
        )

    def draw(self, findings: Findings) -> Figure:
        """Draw bars of every policy on each variant, one panel per workload."""
        figure = new_figure(len(WORKLOADS), width=14.0, height=3.8)
        for axes, ((workload,), rows) in zip(figure.axes, grouped(findings.rows, "workload").items(), strict=False):
            variants = list(dict.fromkeys(str(row["variant"]) for row in rows))
            series = {
                str(policy): [sweeps.over_seeds(group, sweeps.MAX_RHO, variant=variant) for variant in variants]
                for (policy,), group in grouped(rows, "policy").items()
            }
            grouped_bars(axes, [_in_two_lines(name) for name in variants], series)
            fair_line(axes)
            axes.set(title=f"workload {str(workload)[1:]}", ylabel="max rho (definition themis)")
        legend_below(figure, len(PAPER_POLICIES))
        return figure


def _load(scale: Scale, workload: str, variant: Variant) -> Load:
    load = LOADS[scale][workload]
    return Load(name=load.name, options={**load.options, **variant.options})


def _lines(rows: Sequence[Row], workload: object, variant: object) -> list[Comparison]:
    where = f"{workload}, {variant}"
    lines = [sweeps.line(f"max rho, themis, {where}", sweeps.over_seeds(rows, sweeps.MAX_RHO, policy=sweeps.OURS))]
    leads = sweeps.to_ours(rows, sweeps.MAX_RHO)
    if not leads:
        return lines
    for word, name in zip(("nearest", "farthest"), sweeps.nearest_and_farthest(leads), strict=True):
        behind = "; its worst app fares better than that of themis" if leads[name].median < 1.0 else ""
        what = f"max rho, {word} baseline / themis, {where}"
        lines.append(sweeps.line(what, leads[name], remark=f"this is {name}{behind}."))
    for name, ratio in sweeps.to_ours(rows, sweeps.GPU_TIME, ("gandiva", "slaq")).items():
        lines.append(sweeps.line(f"GPU time, {name} / themis, {where}", ratio))
    at_bound = sum(numbers(sweeps.where(rows, policy=sweeps.OURS), "worst_at_bound"))
    runs = len(sweeps.where(rows, policy=sweeps.OURS))
    lines.append(
        Comparison(what=f"share of themis's runs whose worst app is at its lower bound, {where}", ours=at_bound / runs)
    )
    return lines


def _cause(groups: Mapping[tuple[str | float, ...], Sequence[Row]]) -> str:
    """How the lead depends on the workload, for each variant."""
    texts, ahead = [], []
    for (workload, variant), rows in groups.items():
        leads = sweeps.to_ours(rows, sweeps.MAX_RHO)
        if leads:
            nearest, farthest = sweeps.nearest_and_farthest(leads)
            texts.append(f"{workload}, {variant}: {leads[nearest].median:.2f} to {leads[farthest].median:.2f}")
            ahead += [f"{workload}, {variant}"] if leads[nearest].median > 1.0 else []
    return (
        "**The workloads stand in for a trace that is not public.** Max rho of the paper's baselines over that of "
        f"themis, nearest to farthest, when one thing that is made up is changed: {'; '.join(texts)}. "
        f"Every baseline is behind themis in: {'; '.join(ahead) or 'none'}."
    )


def _by_fluid(groups: Mapping[tuple[str | float, ...], Sequence[Row]]) -> list[str]:
    return [f"{workload}, {variant}. {sweeps.fluid_text(rows)}" for (workload, variant), rows in groups.items()]


def _in_two_lines(name: str) -> str:
    words = name.split()
    half = (len(words) + 1) // 2
    return " ".join(words[:half]) + "\n" + " ".join(words[half:])


_REMARK = (
    "Rho is by definition `themis`; the CSV has all definitions. Leases end aligned. The page on workloads "
    "lists what the paper says about its trace, and what is assumed."
)

EXPERIMENT = Sensitivity()
