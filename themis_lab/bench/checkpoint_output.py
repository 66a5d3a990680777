"""The result of `bench checkpoint` as a table for readers and as a document for programs."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence

from msgspec import to_builtins

from themis_lab.bench.checkpoint_run import CheckpointBenchPlan, Row

_TITLES = ("MB", "save, s", "put, s", "ratio", "fetch, s", "get, s", "ratio", "verify, s")


def document(plan: CheckpointBenchPlan, rows: Sequence[Row]) -> dict[str, object]:
    """The JSON document (docs/reference/benchmarks.md)."""
    return {
        "benchmark": "checkpoint",
        "uri": plan.uri,
        "seed": plan.seed,
        "environment": {"python": platform.python_version(), "cpus": os.cpu_count(), "load_1min": os.getloadavg()[0]},
        "rows": [to_builtins(row) for row in rows],
    }


def table(rows: Sequence[Row]) -> str:
    """The table, one line per size."""
    lines = [_TITLES, *(_cells(row) for row in rows)]
    widths = [max(len(line[place]) for line in lines) for place in range(len(_TITLES))]
    return "\n".join("  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)) for line in lines)


def _cells(row: Row) -> tuple[str, ...]:
    seconds = (row.save_s, row.put_s, row.save_ratio, row.fetch_s, row.get_s, row.fetch_ratio, row.verify_s)
    return (str(row.size_mb), *(f"{value:.2f}" for value in seconds))
