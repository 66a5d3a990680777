"""The paper's baselines with gangs on random GPUs and without renewals, as the paper's own may have had.

The paper does not say how its baselines placed gangs. In our other experiments they place them as well as themis does.
"""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.figure import Figure
from msgspec.structs import replace

from rm_plugin.arbiter.round_values import RoundSettings
from themis.choices import GangPlacement
from themis.values import Value
from themis_lab.paper import sweeps
from themis_lab.paper.differences import differs
from themis_lab.paper.fairness import PAPER_MAX, PAPER_MIN
from themis_lab.paper.macro import CLUSTER, LOADS
from themis_lab.paper.plans import make_workload, policies, settings_of, workload_arguments
from themis_lab.paper.plotting import fair_line, grouped_bars, legend_below, new_figure
from themis_lab.paper.port import Cell, Comparison, Done, Findings, PaperClaim, Scale
from themis_lab.paper.statistics import Row, Summary

WORKLOADS = ("w1", "w2")
BEST_FIT, BLIND = GangPlacement.BEST_FIT.value, GangPlacement.BLIND.value
_MEASURES = (
    ("max rho", sweeps.MAX_RHO),
    ("max rho by fluid", sweeps.BY_FLUID),
    ("GPU time", sweeps.GPU_TIME),
)


class Blind(Value, frozen=True, kw_only=True):
    """Each of the paper's policies on both workloads; the baselines with both kinds of placement."""

    name: str = "blind"
    title: str = "baselines that scatter gangs and renew no lease"

    def cells(self, scale: Scale, seeds: int) -> Sequence[Cell]:
        """Themis, and each baseline with best fit and blind."""
        return [
            _cell(workload, policy, placement, scale, seed)
            for workload in WORKLOADS
            for policy in policies((sweeps.OURS, *sweeps.BASELINES))
            for placement in GangPlacement
            if policy != sweeps.OURS or placement is GangPlacement.BEST_FIT
            for seed in range(1, seeds + 1)
        ]

    def evaluate(self, done: Sequence[Done]) -> Findings:
        """Rows of runs; the comparison is of blind baselines with themis, and with themselves at best fit."""
        return findings_of(sweeps.rows_of_runs(done))

    def draw(self, findings: Findings) -> Figure:
        """Bars of every baseline over themis, by placement: max rho by two definitions, and GPU time."""
        figure = new_figure(2 * len(_MEASURES), width=16.0, height=3.6)
        panels = [(workload, what, column) for workload in WORKLOADS for what, column in _MEASURES]
        for axes, (workload, what, column) in zip(figure.axes, panels, strict=True):
            rows = sweeps.where(findings.rows, workload=workload)
            bars = {name: _leads(rows, column, name) for name in (BEST_FIT, BLIND)}
            names = list(bars[BEST_FIT])
            series = {_LABELS[name]: [values[each] for each in names] for name, values in bars.items()}
            grouped_bars(axes, names, series, colours={_LABELS[BEST_FIT]: "#34658f", _LABELS[BLIND]: "#c98b6b"})
            axes.tick_params(axis="x", rotation=60)
            axes.set_title(f"{workload}: {what}")
            fair_line(axes)
        figure.axes[0].set_ylabel("baseline / themis")
        legend_below(figure)
        return figure


_LABELS = {BEST_FIT: "best fit, renewed in place", BLIND: "random GPUs, never renewed"}


def findings_of(rows: Sequence[Row]) -> Findings:
    """The findings from the rows of runs."""
    return Findings(
        rows=tuple(rows),
        comparisons=tuple(_lines(rows)),
        remarks=(
            *(
                f"Blind, {workload}. {sweeps.fluid_text([row for row in own if row['placement'] == BLIND])}"
                for workload in WORKLOADS
                if (own := sweeps.where(rows, workload=workload))
            ),
            "Blind baselines take random free GPUs and renew nothing. A task's GPUs are still on one machine, and a "
            "job that would be slower with more GPUs gets them by best fit. Leases end aligned. Gandiva and optimus "
            "weigh placement by themselves, so blind ones are not the systems of their papers.",
        ),
        claims=_claims(rows),
        causes=(_cause(rows),),
    )


def _cell(workload: str, policy: str, placement: GangPlacement, scale: Scale, seed: int) -> Cell:
    settings = settings_of(CLUSTER, policy, seed)
    if placement is GangPlacement.BLIND:
        settings = replace(settings, rounds=RoundSettings(gang_placement=placement))
    return Cell(
        labels={"workload": workload, "policy": policy, "placement": placement.value, "seed": seed},
        make_workload=make_workload,
        workload_arguments=workload_arguments(LOADS[scale][workload], seed, CLUSTER),
        settings=settings,
    )


def _leads(rows: Sequence[Row], column: str, placement: str) -> dict[str, Summary]:
    """Each baseline's column over that of themis, seed by seed."""
    present = {str(row["policy"]) for row in rows}
    return {
        name: sweeps.ratios(rows, column, {"policy": name, "placement": placement}, {"policy": sweeps.OURS})
        for name in sweeps.BASELINES
        if name in present
    }


def _lines(rows: Sequence[Row]) -> list[Comparison]:
    lines = []
    for workload in WORKLOADS:
        chosen = sweeps.where(rows, workload=workload)
        for what, column in _MEASURES:
            leads = _leads(chosen, column, BLIND)
            if not leads:
                continue
            if column == sweeps.MAX_RHO:
                lines += _extremes(leads, workload)
            lines += [sweeps.line(f"{what}, {name}, blind / themis, {workload}", lead) for name, lead in leads.items()]
    return lines


def _extremes(leads: dict[str, Summary], workload: str) -> list[Comparison]:
    """The baselines with the smallest and the largest ratio, beside the paper's."""
    names = sweeps.nearest_and_farthest(leads)
    return [
        sweeps.line(
            f"max rho, {word} baseline, blind / themis, {workload}",
            leads[name],
            paper=f"{paper:g}",
            number=paper,
            remark=f"this is {name}." if differs(leads[name].median, paper) else "",
        )
        for word, name, paper in zip(("nearest", "farthest"), names, (PAPER_MIN, PAPER_MAX), strict=True)
    ]


def _ranges(rows: Sequence[Row], column: str, placement: str) -> str:
    texts = []
    for workload in WORKLOADS:
        medians = [lead.median for lead in _leads(sweeps.where(rows, workload=workload), column, placement).values()]
        texts += [f"{workload} {min(medians):.2f} to {max(medians):.2f}"] if medians else []
    return ", ".join(texts)


def _claims(rows: Sequence[Row]) -> tuple[PaperClaim, ...]:
    medians = [
        lead.median
        for workload in WORKLOADS
        for lead in _leads(sweeps.where(rows, workload=workload), sweeps.MAX_RHO, BLIND).values()
    ]
    return (
        PaperClaim(
            paper=f"max rho {PAPER_MIN:g} to {PAPER_MAX:g} times better than the baselines, here blind ones (blind)",
            here=f"{_ranges(rows, sweeps.MAX_RHO, BLIND)} times",
            ratio=f"{min(medians) / PAPER_MIN:.2f} to {max(medians) / PAPER_MAX:.2f}" if medians else "",
            fluid=_ranges(rows, sweeps.BY_FLUID, BLIND),
        ),
    )


def _cause(rows: Sequence[Row]) -> str:
    parts = [
        f"{what} {_ranges(rows, column, BLIND)}, placed by best fit {_ranges(rows, column, BEST_FIT)}"
        for what, column in _MEASURES
    ]
    return (
        "**How the baselines place gangs.** The paper does not say. With random GPUs and no renewals, the paper's "
        f"baselines over themis, from the least to the largest: {'; '.join(parts)}."
    )


EXPERIMENT = Blind()
