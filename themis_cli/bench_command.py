"""`themis bench`: benchmarks on random workloads that follow from a seed."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING

from themis.errors import InputError
from themis_cli import (
    bench_allox_command,
    bench_checkpoint_command,
    bench_oef_command,
    bench_profiler_command,
    bench_resize_command,
    bench_service_command,
    bench_simulator_command,
    bench_valuation_command,
)
from themis_cli.parsers import Subcommands

if TYPE_CHECKING:
    from themis_lab.bench.auction_plan import AuctionBenchPlan
    from themis_lab.bench.auction_rows import ResultRow
    from themis_lab.bench.auction_run import Progress

_QUIET_S = 10.0
_BOTH = "both"


def add_to(commands: Subcommands) -> None:
    """Add `bench` with all its benchmarks."""
    group = commands.add_parser("bench", help="measure").add_subparsers(metavar="COMMAND", required=True)
    bench_simulator_command.add_to(group)
    bench_profiler_command.add_to(group)
    bench_checkpoint_command.add_to(group)
    bench_resize_command.add_to(group)
    bench_service_command.add_to(group)
    bench_valuation_command.add_to(group)
    bench_oef_command.add_to(group)
    bench_allox_command.add_to(group)
    parser = group.add_parser("auction", help="time whole auctions, our solver against HiGHS")
    parser.add_argument("--sizes", default="64,168,1024,10000", metavar="GPUS,..", help="default: %(default)s")
    parser.add_argument("--markets", type=int, default=16, metavar="N", help="markets a row; default: %(default)s")
    parser.add_argument("--gangs", choices=("powers", "any", _BOTH), default=_BOTH, help="default: %(default)s")
    parser.add_argument("--cluster", choices=("empty", "fragmented", _BOTH), default=_BOTH, help="default: %(default)s")
    parser.add_argument("--explicit", action="store_true", help="also tables of GPUs by machine")
    parser.add_argument("--elastic-share", type=float, default=0.2, metavar="SHARE", help="default: %(default)s")
    parser.add_argument("--seed", type=int, default=0, help="seed of the first market (default: %(default)s)")
    parser.add_argument("--solver", default="exact", help="the solver to measure; default: %(default)s")
    parser.add_argument("--highs", choices=("auto", "always", "never"), default="auto", help="default: %(default)s")
    parser.add_argument("--budget-s", type=float, default=None, metavar="S", help="approximate seconds for all rows")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=_auction)


def _auction(options: argparse.Namespace) -> int:
    plan = _plan(options)
    # Imported late, so that bad options are reported at once.
    from themis_lab.bench.auction_output import document, table
    from themis_lab.bench.auction_run import run_plan
    from themis_lab.bench.worker import run_apart

    rows = _follow(run_apart(run_plan, plan))
    sys.stdout.write((json.dumps(document(plan, rows)) if options.json else table(plan, rows)) + "\n")
    return 0


def _plan(options: argparse.Namespace) -> AuctionBenchPlan:
    from rm_plugin.solvers.registry import solver
    from themis_lab.bench.apps import GangMix
    from themis_lab.bench.auction_plan import AuctionBenchPlan, HighsUse, variants_of
    from themis_lab.bench.holdings import ClusterState
    from themis_lab.bench.sizes import size_of

    solver(options.solver)
    gangs = tuple(GangMix) if options.gangs == _BOTH else (GangMix(options.gangs),)
    clusters = tuple(ClusterState) if options.cluster == _BOTH else (ClusterState(options.cluster),)
    sizes = [size_of(gpus) for gpus in _numbers(options.sizes)]
    return AuctionBenchPlan(
        variants=variants_of(sizes, gangs, clusters, explicit=options.explicit),
        markets=options.markets,
        seed=options.seed,
        highs=HighsUse(options.highs),
        budget_s=options.budget_s,
        solver=options.solver,
        elastic_share=options.elastic_share,
    )


def _numbers(text: str) -> list[int]:
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isascii() and part.isdigit() for part in parts):
        raise InputError("--sizes does not parse", value=text, remedy="write numbers of GPUs: 64,168")
    return sorted({int(part) for part in parts})


def _follow(items: Iterable[Progress | ResultRow]) -> list[ResultRow]:
    """Return the rows. Progress goes to standard error, on a terminal as one line that is redrawn."""
    from rich.console import Console

    from themis_lab.bench.auction_rows import ResultRow

    console = Console(stderr=True, highlight=False)
    rows: list[ResultRow] = []
    said_s = time.monotonic()
    with console.status("drawing the first market") as status:
        for item in items:
            if isinstance(item, ResultRow):
                rows.append(item)
            elif console.is_terminal:
                status.update(_line(item))
            elif item.done == item.markets or time.monotonic() - said_s > _QUIET_S:
                said_s = time.monotonic()
                sys.stderr.write(_line(item) + "\n")
    return rows


def _line(progress: Progress) -> str:
    highs = "left out" if progress.highs_s is None else f"{progress.highs_s:.3g} s"
    return (
        f"{progress.variant}: {progress.done} of {progress.markets} markets;"
        f" last: ours {progress.ours_s:.3g} s, HiGHS {highs}"
    )
