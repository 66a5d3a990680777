"""Figure 14: max rho under growing contention. In the paper only themis keeps it near 1; srsf comes next."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from themis.values import Value
from themis_lab.paper import sweeps
from themis_lab.paper.differences import NOT_KNOWN, differs, scatter_text, sentence, side
from themis_lab.paper.macro import LOADS
from themis_lab.paper.plans import policy_cells
from themis_lab.paper.plotting import fair_line
from themis_lab.paper.port import Cell, Comparison, Done, Findings, PaperClaim, Scale
from themis_lab.paper.statistics import UNFAIR_RHO, Row, Summary, numbers

CLUSTERS: Mapping[int, str] = {1: "testbed", 2: "4x2+6x4", 4: "2x2+3x4"}
"""The testbed, and clusters with half and a quarter of its machines of each kind, by contention."""


class Contention(Value, frozen=True, kw_only=True):
    """Figure 14 of NSDI'20: workload 1 on the testbed, halved and quartered."""

    name: str = "fig14"
    title: str = "max rho as the cluster is halved and quartered, workload 1"

    def cells(self, scale: Scale, seeds: int) -> Sequence[Cell]:
        """Every policy on each cluster."""
        return [
            cell
            for contention, cluster in CLUSTERS.items()
            for cell in policy_cells(
                LOADS[scale]["w1"],
                cluster,
                seeds,
                ends=sweeps.ends_of(scale, both=contention in (min(CLUSTERS), max(CLUSTERS))),
                labels={"contention": contention, "cluster": cluster},
            )
        ]

    def evaluate(self, done: Sequence[Done]) -> Findings:
        """Rows of runs; the comparison is of the worst rho by definition `themis`."""
        rows = sweeps.rows_of_runs(done)
        lines = [
            line
            for ends in (sweeps.ALIGNED, sweeps.STAGGERED)
            for contention in CLUSTERS
            for line in _lines(rows, contention, ends)
        ]
        return Findings(rows=rows, comparisons=(*lines, *_growth(rows)), remarks=_remarks(rows), claims=(_claim(rows),))

    def draw(self, findings: Findings) -> Figure:
        """Bars of every policy at each contention."""

        def decorate(axes: Axes) -> None:
            axes.set(xlabel="contention", ylabel="max rho")
            fair_line(axes)

        return sweeps.bars_by_policy(
            findings.rows, "contention", sweeps.MAX_RHO, lambda contention: f"{contention:g}x", decorate, fluid=True
        )


def _aligned(rows: Sequence[Row], contention: int) -> list[Row]:
    return sweeps.where(rows, contention=contention, ends=sweeps.ALIGNED)


def _lines(rows: Sequence[Row], contention: int, ends: str) -> list[Comparison]:
    chosen = sweeps.where(rows, contention=contention, ends=ends)
    if not chosen:
        return []
    how = "" if ends == sweeps.ALIGNED else f", {ends}"
    ours = sweeps.over_seeds(chosen, sweeps.MAX_RHO, policy=sweeps.OURS)
    what = f"max rho, themis, contention {contention}x{how}"
    lines = [sweeps.line(what, ours, paper="near 1", remark=_near_1(ours.median))]
    leads = sweeps.to_ours(chosen, sweeps.MAX_RHO, ends=ends)
    if leads:
        nearest, farthest = sweeps.nearest_and_farthest(leads)
        for word, name in (("nearest", nearest), ("farthest", farthest)):
            behind = " Its worst app fares better than that of themis." if leads[name].median < 1.0 else ""
            paper = "above 1; srsf" if word == "nearest" and contention > 1 else ""
            what = f"max rho, {word} baseline / themis, contention {contention}x{how}"
            lines.append(sweeps.line(what, leads[name], paper=paper, remark=f"this is {name}.{behind}"))
    return lines


def _near_1(worst: float) -> str:
    if worst > UNFAIR_RHO:
        return f"above {UNFAIR_RHO}: sharing is a loss to at least one app."
    return "well below 1: sharing is a gain to every app." if differs(worst, 1.0) else ""


def _growth(rows: Sequence[Row]) -> list[Comparison]:
    """The growth of max rho from the whole cluster to a quarter of it, for each policy."""
    least, most = min(CLUSTERS), max(CLUSTERS)
    lines = []
    for policy, _ in sweeps.ranking(_aligned(rows, most), sweeps.MAX_RHO):
        own = {"policy": policy, "ends": sweeps.ALIGNED}
        growth = sweeps.ratios(rows, sweeps.MAX_RHO, {**own, "contention": most}, {**own, "contention": least})
        what = f"max rho at contention {most}x / at {least}x, {policy}"
        if policy == sweeps.OURS:
            lines.append(sweeps.line(what, growth, paper="about 1", number=1.0, remark=_apart(rows, growth)))
        else:
            lines.append(sweeps.line(what, growth))
    return lines


def _apart(rows: Sequence[Row], growth: Summary) -> str:
    """A sentence if max rho of themis changes: how much of the change the apps' lower bounds explain."""
    if not differs(growth.median, 1.0):
        return ""
    bounds, stuck = [], 0.0
    for contention in (min(CLUSTERS), max(CLUSTERS)):
        runs = sweeps.where(_aligned(rows, contention), policy=sweeps.OURS)
        at_bound = sum(numbers(runs, "worst_at_bound"))
        stuck += at_bound
        bounds.append(
            f"{sweeps.over_seeds(runs, 'max_bound').median:.3g} at {contention}x, where the worst app is at its bound "
            f"in {at_bound:.0f} of {len(runs)} runs"
        )
    return sentence(
        f"{side(growth.median, 1.0)}; the largest lower bound of an app is {', and '.join(bounds)}",
        "in runs at the bound max rho describes the workload, not the policy" if stuck else "",
        scatter_text(growth, 1.0),
        "" if stuck else NOT_KNOWN,
    )


def _claim(rows: Sequence[Row]) -> PaperClaim:
    most = max(CLUSTERS)
    order = sweeps.ranking_text(_aligned(rows, most), sweeps.MAX_RHO)
    medians = {
        contention: sweeps.over_seeds(_aligned(rows, contention), sweeps.MAX_RHO, policy=sweeps.OURS).median
        for contention in CLUSTERS
    }
    ours = ", ".join(f"{median:.2f} at {contention}x" for contention, median in medians.items())
    return PaperClaim(
        paper="only themis keeps max rho near 1 as the cluster is halved and quartered; srsf next (fig14)",
        here=f"themis {ours}; all at {most}x, aligned: {order}",
        ratio=f"{medians[most]:.2f}",
        fluid=f"at {most}x, aligned: {sweeps.ranking_text(_aligned(rows, most), sweeps.BY_FLUID)}",
    )


def _remarks(rows: Sequence[Row]) -> tuple[str, ...]:
    return (
        *(_order(_aligned(rows, contention), contention) for contention in CLUSTERS),
        *(f"Contention {each}x, aligned. {sweeps.fluid_text(_aligned(rows, each))}" for each in CLUSTERS),
        sweeps.left_out(rows, "contention"),
    )


def _order(rows: Sequence[Row], contention: int) -> str:
    bound = sweeps.over_seeds(rows, "max_bound", policy=sweeps.OURS)
    return (
        f"Contention {contention}x, aligned, max rho (median over seeds): {sweeps.ranking_text(rows, sweeps.MAX_RHO)}; "
        f"{sweeps.bound_text(bound)}."
    )


EXPERIMENT = Contention()
