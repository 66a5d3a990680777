"""The result of `bench valuation` as tables for readers and as a document for programs."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence

from msgspec import to_builtins

from themis_lab.bench.valuation_cases import JOBS, LARGE_GPUS
from themis_lab.bench.valuation_run import NEAR, GapRow, ReferenceRow, Row, TimeRow, ValuationBenchPlan

Cells = tuple[str, ...]

_GAP_TITLES = ("packing", "bundles", "median gap", "worst gap", "within 1 %", "exact")
_REFERENCE_TITLES = ("reference", "within 1 %", "not", "undecided", "widest found")
_TIME_TITLES = ("asked", "times", "p50, ms", "p95, ms")


def document(plan: ValuationBenchPlan, rows: Sequence[Row]) -> dict[str, object]:
    """The JSON document (docs/reference/benchmarks.md)."""
    return {
        "benchmark": "valuation",
        "seed": plan.seed,
        "jobs": JOBS,
        "gpus": LARGE_GPUS,
        "near": NEAR,
        "environment": {"python": platform.python_version(), "cpus": os.cpu_count(), "load_1min": os.getloadavg()[0]},
        "gaps": [to_builtins(row) for row in rows if isinstance(row, GapRow)],
        "reference_s": plan.reference_s,
        "reference": [to_builtins(row) for row in rows if isinstance(row, ReferenceRow)],
        "times": [to_builtins(row) for row in rows if isinstance(row, TimeRow)],
    }


def table(rows: Sequence[Row]) -> str:
    """The tables, with that of the gaps first."""
    gaps = [_gap_cells(row) for row in rows if isinstance(row, GapRow)]
    times = [
        (row.part, str(row.asked), f"{row.p50_ms:.2f}", f"{row.p95_ms:.2f}") for row in rows if isinstance(row, TimeRow)
    ]
    settled = [_reference_cells(row) for row in rows if isinstance(row, ReferenceRow)]
    parts: list[tuple[Cells, Sequence[Cells]]] = [
        (_GAP_TITLES, gaps),
        (_REFERENCE_TITLES, settled),
        (_TIME_TITLES, times),
    ]
    return "\n\n".join(_aligned([titles, *cells]) for titles, cells in parts if cells)


def _gap_cells(row: GapRow) -> Cells:
    near, exact = f"{100 * row.near_share:.1f} %", f"{100 * row.exact_share:.1f} %"
    return row.part, str(row.bundles), f"{100 * row.median_gap:.2f} %", f"{100 * row.worst_gap:.2f} %", near, exact


def _reference_cells(row: ReferenceRow) -> Cells:
    return row.part, str(row.near), str(row.far), str(row.undecided), f"{100 * row.shown_gap:.2f} %"


def _aligned(cells: Sequence[Cells]) -> str:
    widths = [max(len(line[place]) for line in cells) for place in range(len(cells[0]))]
    return "\n".join(
        "  ".join(
            cell.rjust(width) if place else cell.ljust(width)
            for place, (cell, width) in enumerate(zip(line, widths, strict=True))
        )
        for line in cells
    )
