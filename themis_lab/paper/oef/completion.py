"""Figure 9 and section 6.3.3: completion times and straggler workers of a trace, with both placers under every rule."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from rm_plugin.policies.oef.registry import RULES
from themis.values import Value
from themis_lab.paper.oef.driver import Record, run
from themis_lab.paper.oef.experiment import rule
from themis_lab.paper.oef.workload import CAPACITY, ROUND_S, TenantLoad, trace
from themis_lab.paper.own_runs import line, panel_of, row, values
from themis_lab.paper.plotting import grouped_bars, legend_below, new_figure
from themis_lab.paper.port import Comparison, Findings, PaperClaim, Scale
from themis_lab.paper.statistics import Row, Summary, summary
from themis_lab.simulator.metrics import percentile

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COMPACT, PLAIN = "OEF's placer", "plain placer"
HOUR_S = 3600.0


class TraceSize(Value, frozen=True, kw_only=True):
    """A trace at a scale; see `workload.trace`. `rounds` is where a run is cut off."""

    tenants: int
    jobs: int
    median_s: float
    arrivals_s: float
    rounds: int


SIZES: Mapping[Scale, TraceSize] = {
    Scale.QUICK: TraceSize(tenants=12, jobs=6, median_s=3 * HOUR_S, arrivals_s=4 * HOUR_S, rounds=576),
    Scale.PAPER: TraceSize(tenants=50, jobs=20, median_s=1 * HOUR_S, arrivals_s=48 * HOUR_S, rounds=1728),
}
"""The paper's trace has 50 tenants of about 20 jobs in three days. Its job lengths are not printed: these fill it."""


class CompletionTimes(Value, frozen=True, kw_only=True):
    """Figure 9."""

    name: str = "oef_fig9"
    title: str = "completion times, straggler workers, and what each placer does for every rule"

    def run(self, scale: Scale, seeds: int) -> Findings:
        """Seeds draw the trace. A job that had not ended when its run was cut off counts with its time until then."""
        size = SIZES[scale]
        rows: list[Row] = []
        for seed in range(1, seeds + 1):
            loads = trace(
                seed, tenants=size.tenants, jobs=size.jobs, median_s=size.median_s, arrivals_s=size.arrivals_s
            )
            for name in RULES:
                for compact in (True, False):
                    record = run(loads, rule(name), compact=compact, rounds=size.rounds)
                    for panel, value in measures(loads, record).items():
                        rows.append(row(panel, COMPACT if compact else PLAIN, name, seed, value))
        return Findings(rows=tuple(rows), comparisons=_comparisons(rows), claims=_claims(rows), causes=CAUSES)

    def draw(self, findings: Findings) -> Figure:
        """Draw mean completion times and straggler workers by rule and placer."""
        figure = new_figure(2, width=14.0)
        panels = (("mean completion, h", "hours", ".1f"), ("straggler workers", "workers, summed over rounds", ".0f"))
        for axes, (panel, label, form) in zip(figure.axes, panels, strict=True):
            groups, series = panel_of(findings.rows, panel)
            names = [str(group).replace("_", "\n").replace("cooperative", "cooper-\native") for group in groups]
            grouped_bars(axes, names, series, labels=form)
            axes.set(ylabel=label, title=panel)
        legend_below(figure)
        return figure


def measures(loads: Sequence[TenantLoad], record: Record) -> dict[str, float]:
    """The measures of a run by name."""
    end_s = len(record.rounds) * ROUND_S
    times_s = [
        record.completion_s.get(job.job_id, end_s - job.arrival_s)
        for load in loads
        for job in load.jobs
        if job.arrival_s < end_s
    ]
    rho = [tenant_rho(load, record) for load in loads if min(job.arrival_s for job in load.jobs) < end_s]
    return {
        "mean completion, h": math.fsum(times_s) / len(times_s) / HOUR_S,
        "95 % completion, h": percentile(times_s, 0.95) / HOUR_S,
        "median completion, h": percentile(times_s, 0.5) / HOUR_S,
        "jobs not ended": float(sum(len(load.jobs) for load in loads) - len(record.completion_s)),
        "straggler workers": float(record.straggler_workers),
        "straggler share": record.straggler_workers / max(record.gang_workers, 1),
        "cross-host gangs": float(record.cross_host_gangs),
        "restarts": float(record.restarts),
        "longest wait, rounds": float(record.longest_wait),
        "max rho": max(rho, default=math.nan),
    }


def tenant_rho(load: TenantLoad, record: Record) -> float:
    """Finish-time fairness of a tenant on mixed devices, from its first arrival to its last end.

    The ideal is a fluid one, in the tenant's own slowest-type units: its work on an equal part of the cluster, among as
    many tenants as were active on average while it was. It cannot be shorter than the time in which its jobs arrived
    and the last of them ran alone on the fastest type. A tenant with a job that had not ended when the run was cut off
    counts as if it ended then: this is a lower bound.
    """
    first_s = min(job.arrival_s for job in load.jobs)
    has_ended = all(job.job_id in record.completion_s for job in load.jobs)
    ended_s = record.ended_s[load.tenant_id] if has_ended else len(record.rounds) * ROUND_S
    rounds = record.rounds[int(first_s / ROUND_S) : math.ceil(ended_s / ROUND_S)]
    contention = sum(len(tenants) for tenants in rounds) / max(len(rounds), 1)
    whole_cluster = sum(devices * speedup for devices, speedup in zip(CAPACITY, load.speedup, strict=True))
    work_s = math.fsum(job.work_s * job.gang for job in load.jobs)
    alone_s = max(job.arrival_s + job.work_s / max(load.speedup) for job in load.jobs) - first_s
    return (ended_s - first_s) / max(work_s * contention / whole_cluster, alone_s)


def _ratio(rows: Sequence[Row], panel: str, ours: tuple[str, str], theirs: tuple[str, str]) -> Summary:
    """Ours over theirs minus 1, seed by seed; each is a (rule, placer)."""
    own = values(rows, panel, ours[1], ours[0])
    other = values(rows, panel, theirs[1], theirs[0])
    return summary(one / max(two, 1e-9) - 1 for one, two in zip(own, other, strict=True))


def _comparisons(rows: Sequence[Row]) -> tuple[Comparison, ...]:
    ours = ("cooperative", COMPACT)
    lines = []
    for baseline, paper in (("gandiva_fair", -0.17), ("gavel", -0.19)):
        change = _ratio(rows, "mean completion, h", ours, (baseline, PLAIN))
        why = "Large gangs starve under the plain placer: a tenant whose share stays below its gang never runs it."
        what = f"mean completion, cooperative over {baseline} with the plain placer, minus 1"
        lines.append(line(what, change, paper=f"{paper}", number=paper, band=(-1.0, -0.10), why=why))
        same = _ratio(rows, "mean completion, h", ours, (baseline, COMPACT))
        lines.append(line(f"the same over {baseline} with OEF's placer", same))
    for baseline, paper in (("gandiva_fair", -0.14), ("gavel", -0.26)):
        change = _ratio(rows, "straggler workers", ours, (baseline, PLAIN))
        what = f"straggler workers, cooperative over {baseline} with the plain placer, minus 1"
        why = "A rule that runs fewer gangs has fewer stragglers, so compare the shares among workers of gangs, below."
        lines.append(line(what, change, paper=f"{paper}", number=paper, band=(-1.0, 0.0), why=why))
        share = _ratio(rows, "straggler share", ours, (baseline, PLAIN))
        lines.append(line(f"the same of their share among workers of gangs, {baseline}", share))
    lines += [
        line(f"{panel}: {name}, {series}", summary(values(rows, panel, series, name)))
        for panel in (
            "mean completion, h",
            "straggler workers",
            "straggler share",
            "max rho",
            "restarts",
            "jobs not ended",
        )
        for series in (COMPACT, PLAIN)
        for name in RULES
    ]
    return tuple(lines)


def _claims(rows: Sequence[Row]) -> tuple[PaperClaim, ...]:
    plain = _ratio(rows, "mean completion, h", ("cooperative", COMPACT), ("gandiva_fair", PLAIN)).median
    same = _ratio(rows, "mean completion, h", ("cooperative", COMPACT), ("gandiva_fair", COMPACT)).median
    return (
        PaperClaim(
            paper="completion times 17 % below Gandiva_fair's (fig. 9)",
            here=f"{plain:+.0%} against it with the plain placer, {same:+.0%} with OEF's placer",
        ),
    )


CAUSES = (
    "The placer makes nearly all of the gain. With OEF's placer, Gavel's and Gandiva_fair's rules are "
    "as fast as OEF; the ablation in `oef_fig9` shows every rule with both placers.",
    "The smallest-gang rule of the rounding decides whether large gangs run at all. Without it, a tenant whose share "
    "stays below its gang holds GPUs that it cannot use.",
)

EXPERIMENTS = (CompletionTimes(),)
