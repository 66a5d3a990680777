"""Run the cases of `bench simulator`, each in a new process, and make a row of each."""

from __future__ import annotations

import math
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from themis.values import Value
from themis_lab.bench.simulator_cases import REACH_MEMORY, Case, Part, SimulatorBenchPlan, Size, cases_of
from themis_lab.bench.simulator_process import Usage, simulate_apart

_MB_A_MIB = 1.048576


class Row(Value, frozen=True, kw_only=True):
    """A case and the resources of its runs (docs/reference/benchmarks.md). None: not measured or not compared."""

    part: str
    gpus: int
    apps: int
    source: str
    left_out: str | None = None
    runs: int | None = None
    wall_s: float | None = None
    slowest_s: float | None = None
    cpu_s: float | None = None
    memory_mib: float | None = None
    run_s: float | None = None
    events: int | None = None
    rounds: int | None = None
    auctions: int | None = None
    unproven: int | None = None
    events_per_s: float | None = None
    rounds_per_s: float | None = None
    reference_s: float | None = None
    reference_mb: float | None = None
    speedup: float | None = None
    memory_share: float | None = None
    reach_speedup: float | None = None
    reach_memory_share: float | None = None
    reach_s: float | None = None
    reached: bool | None = None


def run_cases(plan: SimulatorBenchPlan) -> Iterator[Case | Row]:
    """Yield every case before it runs, then its row.

    A case that takes longer than its limit, or than the remaining budget, is left out. A size of the growth that is no
    smaller than one that exceeded the limit is left out without a try.

    Raises:
        InputError: The trace or its table cannot be read.
        ThemisError: A run failed.
    """
    end_s = math.inf if plan.budget_s is None else time.monotonic() + plan.budget_s
    too_large: list[Size] = []
    with tempfile.TemporaryDirectory(prefix="themis-bench-") as folder:
        for case in cases_of(plan, Path(folder)):
            yield case
            yield _run_case(case, Path(folder), end_s, too_large)


def _run_case(case: Case, folder: Path, end_s: float, too_large: list[Size]) -> Row:
    """The row of a case. A size that takes too long is added to `too_large`."""
    left_s = end_s - time.monotonic()
    if case.part is Part.GROWTH and any(size.within(case.size) for size in too_large):
        return row_without(case, f"a smaller size took over {case.limit_s:g} s")
    if left_s <= 0.0:
        return row_without(case, "the budget was spent")
    usages = list(_usages(case, folder, end_s))
    if usages:
        return row_of(case, usages)
    if left_s < case.limit_s:
        return row_without(case, f"it took over the {left_s:.0f} s left of the budget")
    if case.part is Part.GROWTH:
        too_large.append(case.size)
    return row_without(case, f"it took over {case.limit_s:g} s")


def _usages(case: Case, folder: Path, end_s: float) -> Iterator[Usage]:
    """The resources of each run of a case, up to one that takes too long."""
    for _ in range(case.repeats):
        left_s = end_s - time.monotonic()
        usage = simulate_apart(case.arguments, folder, min(case.limit_s, left_s)) if left_s > 0.0 else None
        if usage is None:
            return
        yield usage


def row_without(case: Case, why: str) -> Row:
    """The row of a case that was left out."""
    return Row(part=case.part, gpus=case.size.gpus, apps=case.size.apps, source=case.source, left_out=why)


def row_of(case: Case, usages: Sequence[Usage]) -> Row:
    """The row of a case, by its fastest run, because other load of the machine only adds time.

    Rates are of the run alone, seconds and memory of the whole process; memory is the largest of all runs.
    """
    usage = min(usages, key=lambda each: each.wall_s)
    memory_mib = max(each.peak_mib for each in usages)
    document, reference = usage.document, case.reference
    run_s = document["wall_s"]
    speedup = None if reference is None else reference.wall_s / usage.wall_s
    share = None if reference is None else memory_mib * _MB_A_MIB / reference.memory_mb
    return Row(
        part=case.part,
        gpus=case.size.gpus,
        apps=case.size.apps,
        source=case.source,
        runs=len(usages),
        wall_s=usage.wall_s,
        slowest_s=max(each.wall_s for each in usages),
        cpu_s=usage.cpu_s,
        memory_mib=memory_mib,
        run_s=run_s,
        events=document["events"],
        rounds=document["rounds"],
        auctions=document["auctions"]["auctions"],
        unproven=document["auctions"]["unproven"],
        events_per_s=document["events"] / run_s,
        rounds_per_s=document["rounds"] / run_s,
        reference_s=None if reference is None else reference.wall_s,
        reference_mb=None if reference is None else reference.memory_mb,
        speedup=speedup,
        memory_share=share,
        reach_speedup=None if reference is None else reference.reach,
        reach_memory_share=None if reference is None else REACH_MEMORY,
        reach_s=case.reach_s,
        reached=_reached(case, usage.wall_s, speedup, share),
    )


def _reached(case: Case, wall_s: float, speedup: float | None, share: float | None) -> bool | None:
    """Whether all aims of a case are reached. Returns None if it has none."""
    if case.reference is not None and speedup is not None and share is not None:
        return speedup >= case.reference.reach and share <= REACH_MEMORY
    return None if case.reach_s is None else wall_s <= case.reach_s
