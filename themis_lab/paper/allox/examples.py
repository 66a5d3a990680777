"""Table 1, figures 1, 4 and 5, and figure 10: worked examples, and errors of estimates."""

from __future__ import annotations

import math
import random
import statistics
from typing import TYPE_CHECKING

from rm_plugin.arbiter.seeds import child_seed
from rm_plugin.policies.allox import decision
from rm_plugin.policies.allox.baselines import es_fcfs, jsq, sjf
from rm_plugin.policies.allox.values import Decision, Snapshot
from themis.values import Value
from themis_lab.paper.allox.driver import Policy, RunResult, estimate_error, run
from themis_lab.paper.own_runs import line, point, row
from themis_lab.paper.plotting import cdf_lines, new_figure
from themis_lab.paper.port import Findings, PaperClaim, Scale
from themis_lab.paper.statistics import summary
from themis_lab.simulator.workloads.interchangeable import CPU, GPU, Trace, TraceJob

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_TABLE_1 = ((10, 15), (8, 10), (10, 50), (5, 75), (10, 15), (10, 15))
_JSQ = ((40, 50), (40, 50), (40, 160), (40, 160))
_SJF = ((10, 20), (10, 20), (20, 90), (20, 90))


def _played(times: tuple[tuple[int, int], ...], policy: Policy) -> RunResult:
    """Jobs of (GPU, CPU) times, alternately of two users, on two GPUs and two CPU nodes."""
    jobs = tuple(
        TraceJob(
            job_id=f"J{place}",
            user=f"User {2 - place % 2}",
            arrival_s=0.0,
            true_s={GPU: float(gpu), CPU: float(cpu)},
            memory_gb={GPU: 0.0, CPU: 0.0},
        )
        for place, (gpu, cpu) in enumerate(times, start=1)
    )
    return run(Trace(jobs=jobs, machines={GPU: 2, CPU: 2}, memory_gb=0.0), policy)


class WorkedExamples(Value, frozen=True, kw_only=True):
    """Table 1 and figures 1, 4 and 5, in minutes."""

    name: str = "allox_tab1"
    title: str = "worked examples: equal share, JSQ+ and SJF+ against the optimum"

    def run(self, _scale: Scale, _seeds: int) -> Findings:
        """Exact; seeds have no effect."""
        users = ("User 1", "User 2")

        def optimum(view: Snapshot) -> Decision:
            return decision.decide(view, alpha=1.0)

        def equal(view: Snapshot) -> Decision:
            return es_fcfs.decide(view, users)

        cases = (
            ("table 1, equal share", _TABLE_1, equal, 181 / 6, ""),
            ("table 1, optimum", _TABLE_1, optimum, 76 / 6, "The optimum is 75/6; the paper's figure 1 draws 76/6."),
            (
                "figure 4, JSQ+",
                _JSQ,
                jsq.decide,
                100.0,
                "The third job joins a GPU's queue, where it ends at 80.",
            ),
            ("figure 4, optimum", _JSQ, optimum, 45.0, ""),
            ("figure 5, SJF+", _SJF, sjf.decide, 50.0, ""),
            ("figure 5, optimum", _SJF, optimum, 20.0, ""),
        )
        exact = {"table 1, optimum": 75 / 6, "figure 4, JSQ+": 60.0}
        played = {case: _played(times, policy) for case, times, policy, _, _ in cases}
        rows = [row("mean", case, "minutes", 1, found.mean_s) for case, found in played.items()]
        comparisons = tuple(
            line(
                f"{case}: mean completion (minutes)",
                point(rows, "mean", case, "minutes"),
                paper=f"{paper:.4g}",
                number=paper,
                band=(exact.get(case, paper) - 1e-9, exact.get(case, paper) + 1e-9),
                why=why,
            )
            for case, _, _, paper, why in cases
        )
        drawn = "The paper draws the schedule of 76 minutes in total; an optimum of 75 ends later."
        makespans = tuple(
            line(
                f"{case}: makespan (minutes)",
                summary([max(played[case].ended_s.values())]),
                paper=f"{paper:g}",
                number=paper,
                band=(ours - 1e-9, ours + 1e-9),
                why=why,
            )
            for case, paper, ours, why in (
                ("table 1, equal share", 75.0, 75.0, ""),
                ("table 1, optimum", 18.0, 20.0, drawn),
            )
        )
        gain = 1 - comparisons[1].ours / comparisons[0].ours
        return Findings(
            rows=tuple(rows),
            comparisons=(*comparisons, *makespans),
            claims=(
                PaperClaim(
                    paper="59 % less mean completion time on table 1", here=f"{gain:.1%}, with the true optimum"
                ),
            ),
        )

    def draw(self, findings: Findings) -> Figure:
        """Draw one bar per case."""
        figure = new_figure(1)
        (axes,) = figure.axes
        names = [str(each["series"]) for each in findings.rows]
        axes.barh(names[::-1], [float(each["value"]) for each in findings.rows][::-1], color="#2e86ab")
        axes.set(xlabel="mean completion, minutes")
        axes.grid(axis="x")
        return figure


class EstimateErrors(Value, frozen=True, kw_only=True):
    """Figure 10: errors of the estimates of 40 jobs. Ours are drawn, so this checks the noise of the other figures."""

    name: str = "allox_fig10"
    title: str = "errors of estimates, sigma 0.1"

    def run(self, _scale: Scale, seeds: int) -> Findings:
        """Draw 40 errors per seed."""
        rows = []
        for seed in range(1, seeds + 1):
            rng = random.Random(child_seed(seed, "allox errors"))
            errors = [estimate_error(rng, 0.1) for _ in range(40)]
            rows += [row("errors", "error", place, seed, error) for place, error in enumerate(errors)]
            rows.append(row("mean", "absolute error", "%", seed, 100 * statistics.fmean(map(abs, errors))))
            rows.append(row("mean", "standard deviation", "%", seed, 100 * statistics.pstdev(errors)))
        mean = point(rows, "mean", "absolute error", "%")
        deviation = point(rows, "mean", "standard deviation", "%")
        why = "Errors are drawn from a normal distribution: its mean absolute value is 0.8 of its standard deviation."
        drawn = "Ours is that of 40 errors drawn with 10 %, cut at 99 %; the paper's errors spread slightly more."
        return Findings(
            rows=tuple(rows),
            comparisons=(
                line("mean absolute error (%)", mean, paper="8", number=8.0, band=(6.0, 10.0), why=why),
                line("standard deviation (%)", deviation, paper="11", number=11.0, why=drawn),
            ),
        )

    def draw(self, findings: Findings) -> Figure:
        """Draw the distribution of absolute errors."""
        figure = new_figure(1)
        errors = [abs(float(each["value"])) * 100 for each in findings.rows if each["panel"] == "errors"]
        cdf_lines(figure.axes[0], {"all seeds": errors}, "absolute error of the estimate, %")
        figure.axes[0].set(ylabel="share of jobs", xlim=(0, math.ceil(max(errors))))
        return figure


EXPERIMENTS = (WorkedExamples(), EstimateErrors())
