"""`themis bench profiler`: measure how fast logs are read."""

from __future__ import annotations

import argparse
import json
import sys
from typing import TYPE_CHECKING

from themis.errors import InputError, UnknownNameError
from themis_cli.parsers import Subcommands

if TYPE_CHECKING:
    from themis_lab.bench.profiler_run import ProfilerBenchPlan


def add_to(group: Subcommands) -> None:
    """Add `profiler` to `bench`."""
    parser = group.add_parser("profiler", help="time the reading of logs, by format")
    parser.add_argument("--kinds", default="all", metavar="KIND,..", help="default: %(default)s")
    parser.add_argument("--size-mb", type=int, default=16, metavar="MB", help="of each log; default: %(default)s")
    parser.add_argument("--repeats", type=int, default=3, metavar="N", help="the best counts; default: %(default)s")
    parser.add_argument("--seed", type=int, default=1, help="seed of the logs (default: %(default)s)")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=_profiler)


def _profiler(options: argparse.Namespace) -> int:
    plan = _plan(options)
    from themis_lab.bench.profiler_output import document, table
    from themis_lab.bench.profiler_run import run_plan

    rows = []
    for row in run_plan(plan):
        sys.stderr.write(f"{row.kind}: {row.mb_per_s:.0f} MB/s\n")
        rows.append(row)
    sys.stdout.write((json.dumps(document(plan, rows)) if options.json else table(rows)) + "\n")
    return 0


def _plan(options: argparse.Namespace) -> ProfilerBenchPlan:
    from themis_lab.bench.profiler_logs import Kind
    from themis_lab.bench.profiler_run import ProfilerBenchPlan

    for name, value in (("--size-mb", options.size_mb), ("--repeats", options.repeats)):
        if value < 1:
            raise InputError(f"{name} must be 1 or more", value=value)
    known = [str(kind) for kind in Kind]
    names = known if options.kinds == "all" else options.kinds.split(",")
    for name in names:
        if name not in known:
            raise UnknownNameError("kind of log", name, known)
    kinds = tuple(map(Kind, names))
    return ProfilerBenchPlan(kinds=kinds, size_mb=options.size_mb, repeats=options.repeats, seed=options.seed)
