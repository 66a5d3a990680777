"""The benchmark of OEF's programmes: CPU time by size, and row generation against the full programme, in one run."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial

import msgspec

from rm_plugin.policies.oef.cooperative import cooperative
from rm_plugin.policies.oef.fair_share import FairShare
from rm_plugin.policies.oef.noncooperative import noncooperative
from rm_plugin.policies.oef.speedup import Speedups, normalise
from rm_plugin.solvers.highs_linear import HighsModel
from rm_plugin.solvers.linear import MakeModel
from themis.values import Value
from themis_lab.simulator.workloads.speedups import random_speedups

LIMITS_S = {("cooperative", 100): 0.3, ("cooperative", 300): 10.0, ("noncooperative", 300): 0.05}
"""CPU seconds that a programme on ten types should not exceed, by mode and tenants."""


class OefPlan(Value, frozen=True, kw_only=True):
    """What to measure.

    Attributes:
        sizes: Numbers of tenants.
        types: GPU types.
        repeats: Instances of each size; the least time counts, because other processes only add to it.
        full: The largest size at which the full cooperative programme is solved too.
        seed: Of the first instance.
    """

    sizes: tuple[int, ...]
    types: int
    repeats: int
    full: int
    seed: int


class OefRow(Value, frozen=True, kw_only=True):
    """One mode at one size.

    Attributes:
        mode: The programme.
        tenants: Its size.
        cpu_s: CPU seconds, the least over the instances.
        limit_s: What it should not exceed; None without a limit.
        rows: Constraints when it was solved, of the instance with the least time.
        solves: How often the programme was solved for it.
        full_s: CPU seconds of the programme with all envy constraints, on the same instance; None if not measured.
        ratio: `full_s` over `cpu_s`, the mean over the instances.
        difference: The largest relative difference of the two totals.
    """

    mode: str
    tenants: int
    cpu_s: float
    limit_s: float | None
    rows: int
    solves: int
    full_s: float | None = None
    ratio: float | None = None
    difference: float | None = None


def run_plan(plan: OefPlan) -> Iterator[OefRow]:
    """Measure every size under both modes."""
    for tenants in plan.sizes:
        instances = [
            normalise(random_speedups(plan.seed + place, tenants, plan.types)) for place in range(plan.repeats)
        ]
        for mode, solve in (("noncooperative", noncooperative), ("cooperative", cooperative)):
            timed = [_timed(solve, each) for each in instances]
            cpu_s, fair = min(timed, key=lambda pair: pair[0])
            limit_s = LIMITS_S.get((mode, tenants)) if plan.types == 10 else None
            row = OefRow(
                mode=mode, tenants=tenants, cpu_s=cpu_s, limit_s=limit_s, rows=fair.constraints, solves=fair.solves
            )
            if mode == "cooperative" and tenants <= plan.full:
                full = [_timed(partial(cooperative, generate_rows=False), each) for each in instances]
                pairs = list(zip(timed, full, strict=True))
                row = msgspec.structs.replace(
                    row,
                    full_s=min(seconds for seconds, _ in full),
                    ratio=sum(slow / quick for (quick, _), (slow, _) in pairs) / len(pairs),
                    difference=max(abs(one.total / two.total - 1) for (_, one), (_, two) in pairs),
                )
            yield row


def _timed(solve: Callable[[Speedups, MakeModel], FairShare], speedups: Speedups) -> tuple[float, FairShare]:
    began_s = time.process_time()
    fair = solve(speedups, HighsModel)
    return time.process_time() - began_s, fair


def table(rows: list[OefRow]) -> str:
    """The rows for readers."""
    lines = [("mode", "tenants", "CPU s", "limit s", "rows", "solves", "full s", "ratio", "difference")]
    for row in rows:
        numbers = (row.limit_s, row.full_s, row.ratio, row.difference)
        limit, full, ratio, difference = ("-" if number is None else f"{number:.3g}" for number in numbers)
        lines.append(
            (
                row.mode,
                str(row.tenants),
                f"{row.cpu_s:.4f}",
                limit,
                str(row.rows),
                str(row.solves),
                full,
                ratio,
                difference,
            )
        )
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if place == 0 else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(line, widths, strict=True))
        )
        for line in lines
    )


def document(plan: OefPlan, rows: list[OefRow]) -> dict[str, object]:
    """The plan and the rows as a JSON document."""
    return {"plan": msgspec.to_builtins(plan), "rows": [msgspec.to_builtins(row) for row in rows]}
