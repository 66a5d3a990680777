"""The benchmark of AlloX: CPU time of matchings, AlloX+ and a whole trace, and of the plain and Gavel's matching."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import TypeVar

import numpy as np
from scipy.optimize import linear_sum_assignment

from rm_plugin.policies.allox import allox_plus
from rm_plugin.policies.allox.decision import free_at_s, match_jobs
from rm_plugin.policies.allox.values import Snapshot
from themis.values import Value
from themis_lab.bench.allox_peers import gavel_total_s
from themis_lab.paper.allox.driver import run
from themis_lab.paper.allox.policies import policy_named
from themis_lab.simulator.workloads.interchangeable import USERS, large, queued

LIMITS_S = {
    ("matching", 200, 40): 0.01,
    ("matching", 1000, 200): 2.0,
    ("allox_plus", 1000, 10_000): 0.1,
    ("trace", 10_000, 40): 120.0,
}
"""CPU seconds that one decision, or the simulation of the trace, should not exceed, by kind, jobs and machines."""

T = TypeVar("T")

_CALLS = 3
"""Calls of one decision on one instance; the least time counts, as the first call pays for code and cold caches."""

_BUSY = (0.0, 0.9)
"""Shares of machines that run a job: with equal waits the matching is easier."""

_MAX_PLAIN_CELLS = 2e8
"""The plain assignment is left out above this many cells of its matrix (8 bytes each)."""


class AlloxBenchPlan(Value, frozen=True, kw_only=True):
    """What to measure.

    Attributes:
        sizes: Pairs of jobs and machines for matchings.
        plain: The most jobs for which the plain assignment and Gavel's matching are solved too.
        repeats: Instances of each size; the least time counts, because other processes only add to it.
        seed: Of the first instance.
        trace: Jobs of the simulated trace; 0 for none.
    """

    sizes: tuple[tuple[int, int], ...]
    plain: int
    repeats: int
    seed: int
    trace: int = 0


class AlloxRow(Value, frozen=True, kw_only=True):
    """One kind of decision at one size, or the simulation of a trace.

    Attributes:
        kind: `matching`, `allox_plus` or `trace`.
        jobs: Waiting jobs, or those of the trace.
        machines: Machines, half of them GPUs.
        busy: Share of the machines that run a job.
        cpu_s: CPU seconds, the least over the instances.
        limit_s: What it should not exceed; None without a limit.
        columns: Positions offered to the solver, of the first instance; 0 for AlloX+.
        plain_s: CPU seconds of the assignment with all n positions of all machines; None if not measured.
        ratio: The time of the plain assignment over ours, the mean over the instances.
        difference: The largest relative difference of the two totals.
        gavel_s: CPU seconds of the matching as Gavel decides it, over idle machines only; None if not measured.
        gavel_ratio: The time of Gavel's matching over ours, the mean over the instances with an idle machine.
        gavel_excess: How much larger the total of Gavel's matching is, relatively, at most.
    """

    kind: str
    jobs: int
    machines: int
    busy: float
    cpu_s: float
    limit_s: float | None
    columns: int = 0
    plain_s: float | None = None
    ratio: float | None = None
    difference: float | None = None
    gavel_s: float | None = None
    gavel_ratio: float | None = None
    gavel_excess: float | None = None

    @property
    def is_over(self) -> bool:
        """Whether it took longer than its limit."""
        return self.limit_s is not None and self.cpu_s > self.limit_s


def run_plan(plan: AlloxBenchPlan) -> Iterator[AlloxRow]:
    """Measure matchings at every size on an idle and on a busy cluster, then AlloX+ at its one size, then the trace."""
    for jobs, machines in plan.sizes:
        for busy in _BUSY:
            yield _matching(plan, jobs, machines, busy)
    jobs, machines = 1000, 10_000
    snapshots = [queued(plan.seed + place, jobs, machines) for place in range(plan.repeats)]
    yield AlloxRow(
        kind="allox_plus",
        jobs=jobs,
        machines=machines,
        busy=0.0,
        cpu_s=min(_timed(partial(allox_plus.decide, snapshot))[0] for snapshot in snapshots),
        limit_s=LIMITS_S["allox_plus", jobs, machines],
    )
    if plan.trace:
        yield _trace(plan)


def _matching(plan: AlloxBenchPlan, jobs: int, machines: int, busy: float) -> AlloxRow:
    ours_s, plain_s, ratios, differences, columns = [], [], [], [], 0
    gavel_s, gavel_ratios, excesses = [], [], []
    with_plain = jobs <= plan.plain and jobs * jobs * machines <= _MAX_PLAIN_CELLS
    for place in range(plan.repeats):
        snapshot = queued(plan.seed + place, jobs, machines, busy)
        cpu_s, matching = _timed(partial(match_jobs, snapshot.waiting, snapshot.machines, snapshot.now_s))
        ours_s.append(cpu_s)
        columns = columns or sum(matching.positions_offered)
        if with_plain:
            slow_s, total_s = _timed(partial(plain_total_s, snapshot))
            plain_s.append(slow_s)
            ratios.append(slow_s / cpu_s)
            differences.append(abs(matching.total_s / total_s - 1.0))
            if any(machine.is_idle for machine in snapshot.machines):
                peer_s, total_s = _timed(partial(gavel_total_s, snapshot))
                gavel_s.append(peer_s)
                gavel_ratios.append(peer_s / cpu_s)
                excesses.append(total_s / matching.total_s - 1.0)
    return AlloxRow(
        kind="matching",
        jobs=jobs,
        machines=machines,
        busy=busy,
        cpu_s=min(ours_s),
        limit_s=LIMITS_S.get(("matching", jobs, machines)),
        columns=columns,
        plain_s=min(plain_s) if plain_s else None,
        ratio=statistics.fmean(ratios) if ratios else None,
        difference=max(differences) if differences else None,
        gavel_s=min(gavel_s) if gavel_s else None,
        gavel_ratio=statistics.fmean(gavel_ratios) if gavel_ratios else None,
        gavel_excess=max(excesses) if excesses else None,
    )


def _timed(call: Callable[[], T]) -> tuple[float, T]:
    """The least CPU seconds of some calls, and what they return."""
    least_s = float("inf")
    for _ in range(_CALLS):
        began_s = time.process_time()
        result = call()
        least_s = min(least_s, time.process_time() - began_s)
    return least_s, result


def plain_total_s(snapshot: Snapshot) -> float:
    """The optimum by the whole matrix Q = [P 2P .. nP] + [D D .. D], as the paper states it."""
    jobs = len(snapshot.waiting)
    times_s = np.array([[job.time_s(each.type_name) for each in snapshot.machines] for job in snapshot.waiting])
    wait_s = np.array([free_at_s(each, snapshot.now_s) - snapshot.now_s for each in snapshot.machines])
    cost = np.concatenate([place * times_s + wait_s for place in range(1, jobs + 1)], axis=1)
    return float(cost[linear_sum_assignment(cost)].sum())


def _trace(plan: AlloxBenchPlan) -> AlloxRow:
    """The trace of section 5.2.2, simulated under AlloX without samples and errors; once, because it takes long."""
    trace = large(plan.seed, max(1, plan.trace // USERS))
    policy = policy_named("allox", trace)
    began_s = time.process_time()
    run(trace, policy)
    cpu_s = time.process_time() - began_s
    jobs, machines = len(trace.jobs), sum(trace.machines.values())
    limit_s = LIMITS_S.get(("trace", jobs, machines))
    return AlloxRow(kind="trace", jobs=jobs, machines=machines, busy=0.0, cpu_s=cpu_s, limit_s=limit_s)


def table(rows: list[AlloxRow]) -> str:
    """The rows for readers."""
    heads = ("kind", "jobs", "machines", "busy", "CPU s", "limit s", "columns", "plain s", "ratio", "difference")
    lines: list[tuple[str, ...]] = [(*heads, "Gavel s", "ratio", "excess")]
    for row in rows:
        numbers = (row.limit_s, row.plain_s, row.ratio, row.difference, row.gavel_s, row.gavel_ratio, row.gavel_excess)
        limit, *compared = ("-" if number is None else f"{number:.3g}" for number in numbers)
        sizes = (str(row.jobs), str(row.machines), f"{row.busy:.0%}")
        limit += ", over" if row.is_over else ""
        columns = str(row.columns) if row.columns else "-"
        lines.append((row.kind, *sizes, f"{row.cpu_s:.4f}", limit, columns, *compared))
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if place == 0 else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(line, widths, strict=True))
        )
        for line in lines
    )
