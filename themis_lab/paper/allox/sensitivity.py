"""Figures 16 to 18: alpha, errors of estimates, the overhead of samples; and how long a decision of AlloX+ takes."""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence
from operator import truediv
from typing import TYPE_CHECKING

from rm_plugin.policies.allox import allox_plus
from themis.values import Value
from themis_lab.paper.allox.experiment import COLOURS, large_run, over_seeds
from themis_lab.paper.own_runs import line, panel_of, point, row, values
from themis_lab.paper.plotting import grouped_bars, legend_below, new_figure
from themis_lab.paper.port import Findings, PaperClaim, Scale
from themis_lab.paper.statistics import Row, Summary, summary
from themis_lab.simulator.workloads.interchangeable import queued

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_ALPHAS = (0.1, 0.2, 0.5, 1.0)
_SIGMAS = (0.0, 0.2, 0.4, 0.6)
_OVERHEADS = (0.0, 0.01, 0.03, 0.05)
_MAX_OVERHEAD = 0.03
"""Overhead up to which AlloX must be first."""

_NOISE = 0.03
"""How far a step may go against a trend that should be monotone."""


def _draw(findings: Findings, labels: Sequence[tuple[str, str, str]]) -> Figure:
    """Lines through medians; `labels` are (panel, label of x, label of y)."""
    figure = new_figure(len(labels))
    for axes, (panel, xlabel, ylabel) in zip(figure.axes, labels, strict=True):
        groups, series = panel_of(findings.rows, panel)
        xs = [float(group) for group in groups]
        for name, ys in series.items():
            axes.plot(xs, [each.median for each in ys], marker="o", label=name, color=COLOURS[name], markersize=3.5)
            low, high = [each.least for each in ys], [each.most for each in ys]
            axes.fill_between(xs, low, high, color=COLOURS[name], alpha=0.12, linewidth=0)
        axes.set(xlabel=xlabel, ylabel=ylabel)
        axes.grid(visible=True)
    legend_below(figure, 8)
    return figure


def _by_seed(rows: Sequence[Row], policy: str, xs: Sequence[float]) -> list[list[float]]:
    """A policy's values along x, for each seed."""
    return [list(own) for own in zip(*(values(rows, "a", policy, x) for x in xs), strict=True)]


def _over(ours: Sequence[Sequence[float]], others: Sequence[Sequence[float]]) -> Summary:
    """Over seeds the largest ratio along x."""
    return summary([max(map(truediv, own, other)) for own, other in zip(ours, others, strict=True)])


def _steps(values: Sequence[Summary]) -> list[float]:
    """Each median over the one before."""
    return [after.median / before.median for before, after in itertools.pairwise(values)]


def _relative(rows: Sequence[Row], panel: str, alpha: float) -> Summary:
    """Over seeds, AlloX' value at an alpha over that at alpha 1."""
    return summary(map(truediv, values(rows, panel, "allox", alpha), values(rows, panel, "allox", _ALPHAS[-1])))


class Alpha(Value, frozen=True, kw_only=True):
    """Figure 16: performance against fairness."""

    name: str = "allox_fig16"
    title: str = "alpha: mean completion, and spread of progress"

    def run(self, scale: Scale, seeds: int) -> Findings:
        """AlloX at each alpha, and SRPT and ES, which have none."""
        rows: list[Row] = []
        for seed in range(1, seeds + 1):
            for alpha in _ALPHAS:
                for policy in ("allox", "srpt", "es"):
                    found = large_run(scale, seed, policy, alpha if policy == "allox" else _ALPHAS[0])
                    rows.append(row("a", policy, alpha, seed, found.mean_s))
                    rows.append(row("b", policy, alpha, seed, found.spread))
        means = [point(rows, "a", "allox", alpha) for alpha in _ALPHAS]
        spreads = [point(rows, "b", "allox", alpha) for alpha in _ALPHAS]
        over = over_seeds(
            seeds, lambda seed: large_run(scale, seed, "allox", 1.0).mean_s / large_run(scale, seed, "srpt").mean_s
        )
        why = "AlloX may not preempt; how much that costs depends on the trace."
        return Findings(
            rows=tuple(rows),
            comparisons=(
                line("mean completion at alpha 1, allox / srpt", over, paper="1.09", number=1.09, why=why),
                line(
                    "largest rise of the mean from one alpha to the next",
                    summary([max(_steps(means))]),
                    paper="falls",
                    band=(0.0, 1.0 + _NOISE),
                    why="It is almost the same at alpha 0.1 and 0.2, where few users are let in, and falls from there.",
                ),
                line(
                    "largest fall of the spread from one alpha to the next",
                    summary([min(_steps(spreads))]),
                    paper="rises",
                    band=(1.0 - _NOISE, 1e9),
                    why="It is almost the same at alpha 0.1 and 0.2, and rises from there.",
                ),
                *(
                    line(f"{what}, alpha {alpha} / alpha 1", _relative(rows, panel, alpha))
                    for what, panel in (("mean completion", "a"), ("spread of progress", "b"))
                    for alpha in _ALPHAS[:-1]
                ),
            ),
            claims=(PaperClaim(paper="9 % above SRPT at alpha 1 (fig. 16)", here=f"{over.median - 1:.0%} above"),),
        )

    def draw(self, findings: Findings) -> Figure:
        """Draw both against alpha."""
        return _draw(findings, (("a", "alpha", "mean completion, s"), ("b", "alpha", "spread of progress")))


class Errors(Value, frozen=True, kw_only=True):
    """Figure 17: errors of estimates."""

    name: str = "allox_fig17"
    title: str = "standard deviation of estimates' errors: mean completion"

    def run(self, scale: Scale, seeds: int) -> Findings:
        """AlloX, ES and SRPT at each sigma; no samples."""
        rows = [
            row("a", policy, sigma, seed, large_run(scale, seed, policy, sigma=sigma).mean_s)
            for seed in range(1, seeds + 1)
            for sigma in _SIGMAS
            for policy in ("allox", "srpt", "es")
        ]
        worst = over_seeds(
            seeds,
            lambda seed: (
                large_run(scale, seed, "allox", sigma=_SIGMAS[-1]).mean_s / large_run(scale, seed, "allox").mean_s
            ),
        )
        lead = _over(_by_seed(rows, "allox", _SIGMAS), _by_seed(rows, "es", _SIGMAS))
        return Findings(
            rows=tuple(rows),
            comparisons=(
                line(
                    "mean completion of allox, sigma 0.6 / sigma 0",
                    worst,
                    paper="about 1",
                    band=(0.0, 1.4),
                    why="With errors of 60 % many jobs are put in the wrong order, or on the slower type.",
                ),
                line("allox / es, at the worst sigma", lead, paper="below 1", band=(0.0, 1.0)),
            ),
            claims=(
                PaperClaim(
                    paper="keeps its lead in spite of large errors (fig. 17)", here=f"{lead.median:.2f} of ES at worst"
                ),
            ),
        )

    def draw(self, findings: Findings) -> Figure:
        """Draw the mean against sigma."""
        return _draw(findings, (("a", "sigma of the relative error", "mean completion, s"),))


class Overhead(Value, frozen=True, kw_only=True):
    """Figure 18: the overhead of samples."""

    name: str = "allox_fig18"
    title: str = "length of the first sample, as a share of the job: mean completion"

    def run(self, scale: Scale, seeds: int) -> Findings:
        """Samples of o and 2 o on both types, errors of 10 %."""
        policies = ("allox", "drfa", "es", "drfs", "drff")
        rows = [
            row("a", policy, overhead, seed, large_run(scale, seed, policy, sigma=0.1, overhead=overhead).mean_s)
            for seed in range(1, seeds + 1)
            for overhead in _OVERHEADS
            for policy in policies
        ]

        few = [overhead for overhead in _OVERHEADS if overhead <= _MAX_OVERHEAD]
        others = zip(*(_by_seed(rows, policy, few) for policy in policies[1:]), strict=True)
        best_other = [[min(each) for each in zip(*of_seed, strict=True)] for of_seed in others]
        lead = _over(_by_seed(rows, "allox", few), best_other)
        ends = zip(*(_by_seed(rows, policy, (0.0, _OVERHEADS[-1])) for policy in policies[:-1]), strict=True)
        degraded = summary([min(last / first for first, last in of_seed) for of_seed in ends])
        drff = point(rows, "a", "drff", _OVERHEADS[-1]).median / point(rows, "a", "drff", 0.0).median
        return Findings(
            rows=tuple(rows),
            comparisons=(
                line(
                    "allox / best other, at the worst overhead up to 3 %",
                    lead,
                    paper="below 1",
                    band=(0.0, 1.0),
                ),
                line(
                    "least degradation of a policy with samples, at 5 %",
                    degraded,
                    paper="above 1",
                    band=(1.0, 1e9),
                ),
                line("degradation of drff", summary([drff]), paper="1", number=1.0, band=(1.0, 1.0)),
            ),
            remarks=(
                "At 5 % the samples alone would need 14 CPU nodes, and at most 10 of the 20 may run samples. So jobs"
                " queue for their samples under every policy that needs them.",
            ),
            claims=(
                PaperClaim(
                    paper="first in spite of profiling (fig. 18)",
                    here=f"{lead.median:.2f} of the best other, up to 3 %",
                ),
            ),
        )

    def draw(self, findings: Findings) -> Figure:
        """Draw the mean against the overhead."""
        return _draw(findings, (("a", "first sample / job", "mean completion, s"),))


class Scalability(Value, frozen=True, kw_only=True):
    """Section 4.4: one decision of AlloX+ on a large cluster. A measured time, so its bytes differ between runs."""

    name: str = "allox_plus"
    title: str = "seconds of one AlloX+ decision: 1000 jobs on 10,000 nodes"

    def run(self, _scale: Scale, seeds: int) -> Findings:
        """The processor time of one decision."""
        rows = []
        for seed in range(1, seeds + 1):
            snapshot = queued(seed, jobs=1000, machines=10_000)
            began_s = time.process_time()
            allox_plus.decide(snapshot)
            rows.append(row("a", "allox_plus", "1000 x 10,000", seed, time.process_time() - began_s))
        took = point(rows, "a", "allox_plus", "1000 x 10,000")
        why = "Machines are pooled by type, so their number hardly counts."
        return Findings(
            rows=tuple(rows),
            comparisons=(line("seconds", took, paper="0.7", number=0.7, band=(0.0, 0.7), why=why),),
        )

    def draw(self, findings: Findings) -> Figure:
        """Draw the time."""
        figure = new_figure(1)
        groups, series = panel_of(findings.rows, "a")
        grouped_bars(figure.axes[0], [str(group) for group in groups], series, colours=COLOURS, labels=".3f")
        figure.axes[0].set(ylabel="processor seconds")
        return figure


EXPERIMENTS = (Alpha(), Errors(), Overhead(), Scalability())
