"""Figures 11 and 12: 40 jobs on 4 GPU and 8 CPU nodes, all submitted at once."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from themis.values import Value
from themis_lab.paper.allox.driver import Profiling, RunResult, run
from themis_lab.paper.allox.experiment import COLOURS, ordered, over_seeds
from themis_lab.paper.allox.policies import NEEDS_NO_ESTIMATES, policy_named
from themis_lab.paper.own_runs import line, panel_of, point, row
from themis_lab.paper.plotting import grouped_bars, new_figure
from themis_lab.paper.port import Findings, PaperClaim, Scale
from themis_lab.simulator.workloads.interchangeable import CPU, GPU, small_cluster

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_POLICIES = ("allox", "es", "drfa", "drfs", "drff")
_ALPHA = 0.5
"""The authors' value for the small cluster; the paper states none."""

_SEEDS_EACH = 10
"""Workloads per seed. One workload has 40 jobs only."""


@cache
def _result(policy: str, seed: int) -> RunResult:
    trace = small_cluster(seed)
    profiling = Profiling() if policy in NEEDS_NO_ESTIMATES else Profiling(sigma=0.1, overhead=0.01)
    return run(trace, policy_named(policy, trace, _ALPHA), seed, profiling)


class SmallCluster(Value, frozen=True, kw_only=True):
    """Figures 11 and 12. The paper's bars have no numbers, so the order is compared."""

    name: str = "allox_fig11"
    title: str = "40 jobs on 4 GPU and 8 CPU nodes: completion time and utilisation (figures 11 and 12)"

    def run(self, _scale: Scale, seeds: int) -> Findings:
        """Samples of 1 and 2 % and errors of 10 %, as in the paper's experiment."""
        rows = []
        for number in range(1, seeds * _SEEDS_EACH + 1):
            for policy in _POLICIES:
                found = _result(policy, number)
                rows.append(row("a", policy, "mean completion", number, found.mean_s))
                rows += [row("b", policy, kind, number, found.utilisation[kind]) for kind in (GPU, CPU)]
        means = {policy: point(rows, "a", policy, "mean completion") for policy in _POLICIES}
        others = over_seeds(
            seeds * _SEEDS_EACH,
            lambda seed: _result("allox", seed).mean_s / min(_result(name, seed).mean_s for name in _POLICIES[1:]),
        )
        comparisons = [
            line("mean completion, allox / best other", others, paper="below 1", band=(0.0, 1.0)),
            *(
                line(f"CPU nodes in use, {name}", point(rows, "b", name, CPU), paper=paper, band=band)
                for name, paper, band in (
                    ("drff", "idle", (0.0, 0.1)),
                    ("drfs", "idle", (0.0, 0.1)),
                    ("es", "in use", (0.3, 1.0)),
                    ("drfa", "in use", (0.3, 1.0)),
                    ("allox", "in use", (0.3, 1.0)),
                )
            ),
        ]
        return Findings(
            rows=tuple(rows),
            comparisons=tuple(comparisons),
            remarks=(
                f"Mean completion, seconds: {ordered(means)}.",
                "Times on a GPU are drawn, because the paper does not state them; speedups are its 1.8 to 10.",
                "The paper's comparison of its simulator with its cluster is made apart, with an emulated one.",
            ),
            claims=(PaperClaim(paper="least mean completion time on the cluster (fig. 11)", here=ordered(means)),),
        )

    def draw(self, findings: Findings) -> Figure:
        """Draw completion times, and utilisation by type."""
        figure = new_figure(2, width=8.0)
        for axes, panel, label in zip(figure.axes, "ab", ("mean completion, s", "share of time in use"), strict=True):
            groups, series = panel_of(findings.rows, panel)
            grouped_bars(axes, [str(group) for group in groups], series, colours=COLOURS)
            axes.set(ylabel=label)
        figure.axes[1].legend(loc="upper right")
        return figure


EXPERIMENTS = (SmallCluster(),)
