"""Figure 16: GPU time by the share of network-intensive apps. In the paper themis needs 8.1 % less than gandiva."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from themis.values import Value
from themis_lab.paper import sweeps
from themis_lab.paper.differences import NOT_KNOWN, differs, scatter_text, sentence, shown
from themis_lab.paper.network import COLUMN, network_cells
from themis_lab.paper.port import Cell, Comparison, Done, Findings, PaperClaim, Scale
from themis_lab.paper.statistics import Row, Summary

PAPER_UNDER_GANDIVA = 8.1
_ALIKE = 1.02


class MixOfEfficiency(Value, frozen=True, kw_only=True):
    """Figure 16 of NSDI'20: the runs of figure 15."""

    name: str = "fig16"
    title: str = "GPU time by the share of network-intensive apps"

    def cells(self, scale: Scale, seeds: int) -> Sequence[Cell]:
        """Every policy at each share."""
        return network_cells(scale, seeds)

    def evaluate(self, done: Sequence[Done]) -> Findings:
        """Rows of runs; the comparison is of the GPU time that all apps held."""
        rows = sweeps.rows_of_runs(done)
        aligned = sweeps.where(rows, ends=sweeps.ALIGNED)
        under = [line for ends in (sweeps.ALIGNED, sweeps.STAGGERED) for line in _under_gandiva(rows, ends)]
        lines = [*_alike(aligned), *under, *_all(aligned)]
        return Findings(rows=rows, comparisons=tuple(lines), remarks=_remarks(rows), claims=_claims(aligned))

    def draw(self, findings: Findings) -> Figure:
        """Bars of every policy at each share."""

        def decorate(axes: Axes) -> None:
            axes.set(xlabel="network-intensive apps", ylabel="GPU time, hours")

        return sweeps.bars_by_policy(findings.rows, COLUMN, sweeps.GPU_TIME, lambda share: f"{share:g} %", decorate)


def _alike(rows: Sequence[Row]) -> list[Comparison]:
    """In the paper all policies need about equal GPU time without network-intensive apps."""
    order = sweeps.ranking(sweeps.where(rows, **{COLUMN: 0}), sweeps.GPU_TIME)
    if not order:
        return []
    (best, least), (worst, most) = order[0], order[-1]
    remark = f"from {best} to {worst}." if most / least > _ALIKE else ""
    what = "GPU time, most of any policy / least, 0 % network-intensive"
    return [Comparison(what=what, paper="equal", paper_value=1.0, ours=most / least, remark=remark)]


def _under_gandiva(rows: Sequence[Row], ends: str) -> list[Comparison]:
    """How much less GPU time themis needs with network-intensive apps only, in percent of gandiva's."""
    chosen = sweeps.where(rows, ends=ends, **{COLUMN: 100})
    how = "" if ends == sweeps.ALIGNED else f", {ends}"
    ratio = sweeps.ratios(chosen, sweeps.GPU_TIME, {"policy": sweeps.OURS}, {"policy": "gandiva"})
    if not ratio.runs:
        return []
    saved = Summary(
        median=(1.0 - ratio.median) * 100.0,
        least=(1.0 - ratio.most) * 100.0,
        most=(1.0 - ratio.least) * 100.0,
        runs=ratio.runs,
    )
    return [
        sweeps.line(
            f"GPU time of themis under that of gandiva, 100 % network-intensive{how} (%)",
            saved,
            paper=f"{PAPER_UNDER_GANDIVA:g}",
            number=PAPER_UNDER_GANDIVA,
            remark=_saved(saved),
        )
    ]


def _saved(saved: Summary) -> str:
    if saved.median < 0.0:
        return "here gandiva needs less GPU time than themis."
    if not differs(saved.median, PAPER_UNDER_GANDIVA):
        return ""
    apart = f"{'less' if saved.median < PAPER_UNDER_GANDIVA else 'more'} is saved than in the paper"
    return sentence(apart, scatter_text(saved, PAPER_UNDER_GANDIVA), NOT_KNOWN)


def _claims(rows: Sequence[Row]) -> tuple[PaperClaim, ...]:
    leads = sweeps.to_ours(sweeps.where(rows, **{COLUMN: 100}), sweeps.GPU_TIME)
    leads_text = ", ".join(f"{name} {(lead.median - 1.0) * 100.0:+.1f} %" for name, lead in leads.items())
    return (
        PaperClaim(
            paper=f"least GPU time, {PAPER_UNDER_GANDIVA:g} % under gandiva, with network-intensive apps only (fig16)",
            here=f"against themis, aligned: {leads_text or 'no baseline was run'}",
        ),
    )


def _all(rows: Sequence[Row]) -> list[Comparison]:
    leads = sweeps.to_ours(sweeps.where(rows, **{COLUMN: 100}), sweeps.GPU_TIME)
    return [
        sweeps.line(
            f"GPU time, {name} / themis, 100 % network-intensive",
            lead,
            paper="above 1",
            remark="" if shown(lead.median) > 1.0 else f"{name} needs no more than themis.",
        )
        for name, lead in leads.items()
    ]


def _remarks(rows: Sequence[Row]) -> tuple[str, ...]:
    texts = [
        f"{percent:g} % network-intensive, aligned, GPU hours: "
        f"{sweeps.ranking_text(sweeps.where(rows, ends=sweeps.ALIGNED, **{COLUMN: percent}), sweeps.GPU_TIME)}."
        for percent in sweeps.axis(rows, COLUMN)
    ]
    return (*texts, sweeps.left_out(rows, COLUMN))


EXPERIMENT = MixOfEfficiency()
