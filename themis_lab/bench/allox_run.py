"""The benchmark of AlloX: CPU time of matchings and of AlloX+, and of the plain assignment, in one run."""

from __future__ import annotations

import time
from collections.abc import Iterator

import numpy as np
from scipy.optimize import linear_sum_assignment

from rm_plugin.policies.allox import allox_plus
from rm_plugin.policies.allox.decision import free_at_s, match_jobs
from rm_plugin.policies.allox.values import Snapshot
from themis.values import Value
from themis_lab.simulator.workloads.interchangeable import queued

LIMITS_S = {("matching", 200, 40): 0.01, ("matching", 1000, 200): 2.0, ("allox_plus", 1000, 10_000): 0.1}
"""CPU seconds that one decision should not exceed, by what decides, jobs and machines."""

_BUSY = (0.0, 0.9)
"""Shares of machines that run a job: with equal waits the matching is easier."""

_MAX_PLAIN_CELLS = 2e8
"""The plain assignment is left out above this many cells of its matrix (8 bytes each)."""


class AlloxPlan(Value, frozen=True, kw_only=True):
    """What to measure.

    Attributes:
        sizes: Pairs of jobs and machines for matchings.
        plain: The most jobs for which the plain assignment is solved too.
        repeats: Instances of each size; the least time counts, because other processes only add to it.
        seed: Of the first instance.
    """

    sizes: tuple[tuple[int, int], ...]
    plain: int
    repeats: int
    seed: int


class AlloxRow(Value, frozen=True, kw_only=True):
    """One kind of decision at one size.

    Attributes:
        kind: `matching` or `allox_plus`.
        jobs: Waiting jobs.
        machines: Machines, half of them GPUs.
        busy: Share of the machines that run a job.
        cpu_s: CPU seconds, the least over the instances.
        limit_s: What it should not exceed; None without a limit.
        columns: Positions offered to the solver, of the first instance; 0 for AlloX+.
        plain_s: CPU seconds of the assignment with all n positions of all machines; None if not measured.
        ratio: `plain_s` over `cpu_s`.
        difference: The largest relative difference of the two totals.
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

    @property
    def is_over(self) -> bool:
        """Whether it took longer than its limit."""
        return self.limit_s is not None and self.cpu_s > self.limit_s


def run_plan(plan: AlloxPlan) -> Iterator[AlloxRow]:
    """Measure matchings at every size on an idle and on a busy cluster, then AlloX+ at its one size."""
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
        cpu_s=min(_allox_plus_s(snapshot) for snapshot in snapshots),
        limit_s=LIMITS_S["allox_plus", jobs, machines],
    )


def _matching(plan: AlloxPlan, jobs: int, machines: int, busy: float) -> AlloxRow:
    ours_s, plain_s, differences, columns = [], [], [], 0
    with_plain = jobs <= plan.plain and jobs * jobs * machines <= _MAX_PLAIN_CELLS
    for place in range(plan.repeats):
        snapshot = queued(plan.seed + place, jobs, machines, busy)
        began_s = time.process_time()
        matching = match_jobs(snapshot.waiting, snapshot.machines, snapshot.now_s)
        ours_s.append(time.process_time() - began_s)
        columns = columns or sum(matching.positions_offered)
        if with_plain:
            began_s = time.process_time()
            total_s = plain_total_s(snapshot)
            plain_s.append(time.process_time() - began_s)
            differences.append(abs(matching.total_s / total_s - 1.0))
    return AlloxRow(
        kind="matching",
        jobs=jobs,
        machines=machines,
        busy=busy,
        cpu_s=min(ours_s),
        limit_s=LIMITS_S.get(("matching", jobs, machines)),
        columns=columns,
        plain_s=min(plain_s) if plain_s else None,
        ratio=min(plain_s) / min(ours_s) if plain_s else None,
        difference=max(differences) if differences else None,
    )


def plain_total_s(snapshot: Snapshot) -> float:
    """The optimum by the whole matrix Q = [P 2P .. nP] + [D D .. D], as the paper states it."""
    jobs = len(snapshot.waiting)
    times_s = np.array([[job.time_s(each.type_name) for each in snapshot.machines] for job in snapshot.waiting])
    wait_s = np.array([free_at_s(each, snapshot.now_s) - snapshot.now_s for each in snapshot.machines])
    cost = np.concatenate([place * times_s + wait_s for place in range(1, jobs + 1)], axis=1)
    return float(cost[linear_sum_assignment(cost)].sum())


def _allox_plus_s(snapshot: Snapshot) -> float:
    began_s = time.process_time()
    allox_plus.decide(snapshot)
    return time.process_time() - began_s


def table(rows: list[AlloxRow]) -> str:
    """The rows for readers."""
    lines = [("kind", "jobs", "machines", "busy", "CPU s", "limit s", "columns", "plain s", "ratio", "difference")]
    for row in rows:
        numbers = (row.limit_s, row.plain_s, row.ratio, row.difference)
        limit, plain, ratio, difference = ("-" if number is None else f"{number:.3g}" for number in numbers)
        sizes = (str(row.jobs), str(row.machines), f"{row.busy:.0%}")
        limit += ", over" if row.is_over else ""
        columns = str(row.columns) if row.columns else "-"
        lines.append((row.kind, *sizes, f"{row.cpu_s:.4f}", limit, columns, plain, ratio, difference))
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if place == 0 else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(line, widths, strict=True))
        )
        for line in lines
    )
