"""The result of `bench profiler` as a table for readers and as a document for programs."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence

from msgspec import to_builtins

from themis_lab.bench.profiler_logs import EVERY_LINES
from themis_lab.bench.profiler_run import ProfilerBenchPlan, Row

_TITLES = ("log", "MB", "records", "MB/s", "limit, MB/s", "share", "us/record")


def document(plan: ProfilerBenchPlan, rows: Sequence[Row]) -> dict[str, object]:
    """The JSON document (docs/reference/benchmarks.md)."""
    return {
        "benchmark": "profiler",
        "seed": plan.seed,
        "repeats": plan.repeats,
        "every_lines": EVERY_LINES,
        "environment": {"python": platform.python_version(), "cpus": os.cpu_count(), "load_1min": os.getloadavg()[0]},
        "rows": [to_builtins(row) for row in rows],
    }


def table(rows: Sequence[Row]) -> str:
    """The table."""
    cells = [_TITLES, *map(_cells, rows)]
    widths = [max(len(line[place]) for line in cells) for place in range(len(_TITLES))]
    return "\n".join(
        "  ".join(
            cell.rjust(width) if place else cell.ljust(width)
            for place, (cell, width) in enumerate(zip(line, widths, strict=True))
        )
        for line in cells
    )


def _cells(row: Row) -> tuple[str, ...]:
    a_record = "-" if row.us_a_record is None else f"{row.us_a_record:.1f}"
    return (
        row.kind, f"{row.mb:.0f}", str(row.records), f"{row.mb_per_s:.0f}", f"{row.limit_mb_per_s:.0f}",
        f"{row.share_of_limit:.3f}", a_record,
    )  # fmt: skip
