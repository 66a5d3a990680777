"""Figure 13: placement scores across policies.

In the paper themis is best on workload 2; on workload 1 all are equal.
"""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.figure import Figure

from themis.values import Value
from themis_lab.paper import macro
from themis_lab.paper.plotting import cdf_lines, legend_below, new_figure
from themis_lab.paper.port import Cell, Comparison, Done, Findings, PaperClaim, Scale
from themis_lab.paper.statistics import Row, Summary, grouped, mean, numbers, summary
from themis_lab.simulator.metrics import share_over

_WHOLE = 0.99
_PANELS = (("w2", macro.ALIGNED), ("w2", macro.STAGGERED), ("w1", macro.ALIGNED))


class PlacementScores(Value, frozen=True, kw_only=True):
    """Figure 13 of NSDI'20. An app's score is the mean of 1/S over the GPU time of its running jobs."""

    name: str = "fig13"
    title: str = "placement scores across schedulers"

    def cells(self, scale: Scale, seeds: int) -> Sequence[Cell]:
        """The runs of figures 9 and 10."""
        return [*macro.macro_cells("w1", scale, seeds), *macro.macro_cells("w2", scale, seeds)]

    def evaluate(self, done: Sequence[Done]) -> Findings:
        """Rows of apps; the comparison is of the mean score over the apps."""
        rows = macro.rows_of_apps(done)
        lines = [*_ranking(rows, macro.ALIGNED), *_ranking(rows, macro.STAGGERED), *_workload_1(rows)]
        return Findings(rows=rows, comparisons=tuple(lines), claims=_claims(rows))

    def draw(self, findings: Findings) -> Figure:
        """Draw CDFs of the score; larger is better."""
        figure = new_figure(len(_PANELS), width=12.0, height=3.6, sharex=True, sharey=True)
        for axes, (workload, ends) in zip(figure.axes, _PANELS, strict=True):
            groups = grouped(macro.picked(findings.rows, ends=ends, workload=workload), "policy")
            series = {str(policy): numbers(group, "placement_score") for (policy,), group in groups.items()}
            cdf_lines(axes, series, "placement score")
            axes.set_title(f"workload {workload[1:]}, {ends} lease ends")
        for axes in figure.axes[1:]:
            axes.set_ylabel("")
        legend_below(figure, 9)
        return figure


def _scores(rows: Sequence[Row], workload: str, ends: str) -> dict[str, Summary]:
    """The mean score of a run's apps by policy, over seeds."""
    chosen = macro.picked(rows, ends=ends, workload=workload)
    return {
        str(policy): summary(mean(numbers(run, "placement_score")) for run in grouped(group, "seed").values())
        for (policy,), group in grouped(chosen, "policy").items()
    }


def _ranking(rows: Sequence[Row], ends: str) -> list[Comparison]:
    scores = _scores(rows, "w2", ends)
    better = [name for name, value in scores.items() if value.median > scores[macro.OURS].median]
    order = sorted(scores, key=lambda name: -scores[name].median)
    remark = f"best first: {', '.join(order)}; the paper: themis, then gandiva and optimus." if better else ""
    return [
        *(macro.line(f"mean score, {name}, workload 2, {ends}", value) for name, value in scores.items()),
        Comparison(
            what=f"rank of themis by mean score, workload 2, {ends}",
            paper="1",
            paper_value=1.0,
            ours=1.0 + len(better),
            remark=remark,
        ),
    ]


def _claims(rows: Sequence[Row]) -> tuple[PaperClaim, ...]:
    ranks = []
    for ends in (macro.ALIGNED, macro.STAGGERED):
        scores = _scores(rows, "w2", ends)
        order = sorted(scores, key=lambda name: -scores[name].median)
        ranks.append(f"{ends}: {order[0]} is best, themis {order.index(macro.OURS) + 1} of {len(order)}")
    return (PaperClaim(paper="best placement scores on workload 2 (fig13)", here="; ".join(ranks)),)


def _workload_1(rows: Sequence[Row]) -> list[Comparison]:
    """In the paper, with jobs of 1 or 2 GPUs, almost all allocations have a score of 1 under every policy."""
    lines = []
    for ends in (macro.ALIGNED, macro.STAGGERED):
        groups = grouped(macro.picked(rows, ends=ends, workload="w1"), "policy")
        shares = {str(name): share_over(numbers(group, "placement_score"), _WHOLE) for (name,), group in groups.items()}
        if not shares:
            continue
        least = min(shares, key=lambda name: shares[name])
        lines.append(
            macro.line(
                f"share of apps with a score over {_WHOLE}, workload 1, {ends}, median over policies",
                summary(shares.values()),
                paper="almost all",
                remark=f"the least is that of {least}, {shares[least]:.0%}.",
            )
        )
    return lines


EXPERIMENT = PlacementScores()
