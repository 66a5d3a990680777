"""The result of `bench auction` as a table for readers and as a document for programs."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from importlib.metadata import version

from msgspec import to_builtins

from themis_lab.bench.auction_plan import AuctionBenchPlan, HighsUse
from themis_lab.bench.auction_rows import Growth, ResultRow, growths

_COLUMNS = (
    ("market", "GPUs/machines/bidders"),
    ("gangs", ""),
    ("cluster", ""),
    ("n", "markets"),
    ("rows", ""),
    ("ours", "ms, p50"),
    ("p95", "ms"),
    ("HiGHS", "s"),
    ("ratio", ""),
    ("worst", ""),
    ("diff", ""),
    ("states", ""),
    ("bids", "ms, p50/p95"),
)


def document(plan: AuctionBenchPlan, rows: Sequence[ResultRow]) -> dict[str, object]:
    """The JSON document (docs/reference/benchmarks.md)."""
    return {
        "benchmark": "auction",
        "solver": plan.solver,
        "reference": "highs",
        "highs": str(plan.highs),
        "seed": plan.seed,
        "elastic_share": plan.elastic_share,
        "environment": {
            "python": platform.python_version(),
            "highspy": version("highspy"),
            "cpus": os.cpu_count(),
        },
        "rows": [row.document() for row in rows],
        "growth": [to_builtins(growth) for growth in growths(rows)],
    }


def table(plan: AuctionBenchPlan, rows: Sequence[ResultRow]) -> str:
    """The table, then notes on its rows, then the growth."""
    cells = [[name for name, _ in _COLUMNS], [unit for _, unit in _COLUMNS], *(_cells(row) for row in rows)]
    widths = [max(len(line[place]) for line in cells) for place in range(len(_COLUMNS))]
    lines = [
        "  ".join(
            cell.ljust(width) if place < 3 else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in cells
    ]
    notes = [note for row in rows for note in _notes(plan, row)]
    return "\n".join([*lines, *notes, *map(_growth_line, growths(rows))])


def _cells(row: ResultRow) -> list[str]:
    bids = "-" if row.bid_p50_ms is None else f"{row.bid_p50_ms:.1f}/{row.bid_p95_ms:.1f}"
    return [
        f"{row.gpus}/{row.machines}/{row.bidders}",
        row.gangs if row.kind == "gangs" else f"{row.gangs}, {row.kind}",
        row.cluster,
        str(row.markets),
        _number(row.rows, ".0f"),
        _number(row.p50_ms, ".4g"),
        _number(row.p95_ms, ".4g"),
        _number(row.highs_s, ".3g") + ("~" if row.highs_sampled else ""),
        _number(row.ratio, ".3g"),
        _number(row.worst_ratio, ".3g"),
        _number(row.objective_rel_diff, ".0e"),
        _number(row.states, ".0f"),
        bids,
    ]


def _number(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)


def _notes(plan: AuctionBenchPlan, row: ResultRow) -> list[str]:
    """Notes on a row for the reader, in whole sentences."""
    name = f"{row.gpus}/{row.machines}/{row.bidders} {row.gangs} {row.cluster} {row.kind}"
    left_out = row.markets - row.highs_markets
    said = {
        f"the time was up after {row.markets} of {plan.markets} markets": row.markets < plan.markets,
        f"{plan.solver} did not prove its answer in {row.ours_unproven} markets": row.ours_unproven > 0,
        f"HiGHS was sampled in {row.highs_sampled_markets} of {row.highs_markets} markets: full problem and"
        f" {row.highs_sampled_problems} problems without one bidder, scaled up (~)": row.highs_sampled,
        f"HiGHS was left out in {left_out} of {row.markets} markets": left_out > 0 and plan.highs is not HighsUse.NEVER,
        f"HiGHS ran into its time limit in {row.highs_unproven} markets": row.highs_unproven > 0,
        f"a cap left out {row.rows_dropped:.0f} rows of a market (median)": bool(row.rows_dropped),
    }
    return [f"{name}: {sentence}" for sentence, holds in said.items() if holds]


def _growth_line(growth: Growth) -> str:
    sizes = ", ".join(map(str, growth.sizes))
    name = f"{growth.gangs} {growth.cluster} {growth.kind}"
    return f"{name}: over {sizes} GPUs our time grows as rows^{growth.slope:.2f}"
