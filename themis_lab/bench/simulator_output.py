"""The result of `bench simulator`: growth, a table for readers, and a document for programs."""

from __future__ import annotations

import math
import os
import platform
from collections.abc import Callable, Mapping, Sequence
from statistics import linear_regression

from msgspec import to_builtins

from themis.values import Value
from themis_lab.bench.simulator_cases import LOAD, REFERENCE_LABEL, SIGMA, TASK_GPU_S, Part, SimulatorBenchPlan
from themis_lab.bench.simulator_run import Row

_TITLES = ("case", "source", "events/s", "rounds/s", "wall, s", "CPU, s", "MiB", "reference", "ratio")
_LEFT = 2


class Growth(Value, frozen=True, kw_only=True):
    """`cpu_s` grows as the `slope`-th power of the varied quantity: `over` names it, `at` what stays constant.

    `slope_of_round` is the same for the CPU seconds of a round. Example: with twice the GPUs and apps, a slope of 1.2
    means 2.3 times the seconds. If the run also has twice the rounds, the slope of a round is 0.2.
    """

    over: str
    at: str
    sizes: tuple[str, ...]
    slope: float
    slope_of_round: float


# By varied quantity: what stays constant, by its value, and the quantity of the slope.
_AXES: Mapping[str, tuple[Callable[[Row], tuple[float, str]], Callable[[Row], int]]] = {
    "GPUs and apps": (lambda row: (row.gpus / row.apps, f"{row.gpus / row.apps:g} GPUs an app"), lambda row: row.gpus),
    "GPUs": (lambda row: (row.apps, f"{row.apps} apps"), lambda row: row.gpus),
    "apps": (lambda row: (row.gpus, f"{row.gpus} GPUs"), lambda row: row.apps),
}


def growths(rows: Sequence[Row]) -> list[Growth]:
    """How CPU seconds grow with size: both together, GPUs alone, apps alone, if there are at least two sizes."""
    measured = [row for row in rows if row.part == Part.GROWTH and row.cpu_s is not None]
    found = []
    for over, (alike, varied) in _AXES.items():
        for key in dict.fromkeys(map(alike, measured)):
            group = sorted((row for row in measured if alike(row) == key), key=varied)
            if len({varied(row) for row in group}) > 1:
                found.append(_growth(over, key[1], group, varied))
    return found


def _growth(over: str, at: str, group: Sequence[Row], varied: Callable[[Row], int]) -> Growth:
    sizes = [math.log(varied(row)) for row in group]
    seconds = [math.log(row.cpu_s or 0.0) for row in group]
    of_round = [total - math.log(row.rounds or 1) for total, row in zip(seconds, group, strict=True)]
    return Growth(
        over=over,
        at=at,
        sizes=tuple(f"{row.gpus}/{row.apps}" for row in group),
        slope=linear_regression(sizes, seconds).slope,
        slope_of_round=linear_regression(sizes, of_round).slope,
    )


def document(plan: SimulatorBenchPlan, rows: Sequence[Row]) -> dict[str, object]:
    """The JSON document (docs/reference/benchmarks.md)."""
    return {
        "benchmark": "simulator",
        "policy": plan.policy,
        "solver": "exact",
        "seed": plan.seed,
        "repeats": plan.repeats,
        "reference": REFERENCE_LABEL,
        "synthetic": {"load": LOAD, "task_gpu_s": TASK_GPU_S, "sigma": SIGMA},
        "environment": {"python": platform.python_version(), "cpus": os.cpu_count(), "load_1min": os.getloadavg()[0]},
        "rows": [to_builtins(row) for row in rows],
        "growth": [to_builtins(growth) for growth in growths(rows)],
    }


def table(rows: Sequence[Row]) -> str:
    """The table, then notes on its rows, then the growth."""
    cells = [list(_TITLES), *(_cells(row) for row in rows)]
    widths = [max(len(line[place]) for line in cells) for place in range(len(_TITLES))]
    lines = ["  ".join(_padded(line, widths)).rstrip() for line in cells]
    notes = [note for row in rows for note in _notes(row)]
    label = [f"reference: {REFERENCE_LABEL}"] if any(row.reference_s is not None for row in rows) else []
    return "\n".join([*lines, *notes, *label, *map(_growth_line, growths(rows))])


def _padded(line: Sequence[str], widths: Sequence[int]) -> list[str]:
    cells = zip(line, widths, strict=True)
    return [cell.ljust(width) if place < _LEFT else cell.rjust(width) for place, (cell, width) in enumerate(cells)]


def _cells(row: Row) -> list[str]:
    compared = row.reference_s is not None
    return [
        _name(row),
        row.source,
        _number(row.events_per_s, ".0f"),
        _number(row.rounds_per_s, ".0f"),
        _number(row.wall_s, ".2f"),
        _number(row.cpu_s, ".2f"),
        _number(row.memory_mib, ".0f"),
        f"{row.reference_s:g} s, {row.reference_mb:g} MB" if compared else "-",
        f"{row.speedup:.2f} x as fast, {row.memory_share:.2f} of the memory" if compared else "-",
    ]


def _name(row: Row) -> str:
    return f"{row.part} {row.gpus}/{row.apps}"


def _number(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)


def _notes(row: Row) -> list[str]:
    """Notes on a row for the reader, in whole sentences."""
    said = []
    if row.left_out is not None:
        said.append(f"left out: {row.left_out}")
    if row.unproven:
        said.append(f"{row.unproven} of {row.auctions} auctions hit their time limit, so were not exact")
    if row.slowest_s is not None and (row.runs or 0) > 1:
        said.append(f"the fastest of {row.runs} runs; the slowest took {row.slowest_s:.2f} s")
    if row.reached is not None:
        said.append(f"{'reached' if row.reached else 'short of'} the aim: {_aim(row)}")
    return [f"{_name(row)}: {sentence}" for sentence in said]


def _aim(row: Row) -> str:
    if row.reach_s is not None:
        return f"{row.reach_s:g} s at most"
    return f"{row.reach_speedup:g} x as fast, {row.reach_memory_share:g} of the memory"


def _growth_line(growth: Growth) -> str:
    sizes = ", ".join(growth.sizes)
    slopes = f"{growth.over}^{growth.slope:.2f}, those of a round as {growth.over}^{growth.slope_of_round:.2f}"
    return f"growth over {sizes} ({growth.at}): CPU seconds grow as {slopes}"
