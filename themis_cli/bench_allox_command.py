"""`themis bench allox`: time AlloX' matchings and AlloX+."""

from __future__ import annotations

import argparse
import json
import sys
from typing import TYPE_CHECKING

from themis.errors import InputError
from themis_cli.parsers import Subcommands

if TYPE_CHECKING:
    from themis_lab.bench.allox_run import AlloxBenchPlan


def add_to(group: Subcommands) -> None:
    """Add `allox` to `bench`."""
    parser = group.add_parser("allox", help="time AlloX' matchings against plain and Gavel's ones, AlloX+, and a trace")
    parser.add_argument(
        "--sizes", default="50x10,200x40,1000x200", metavar="JOBSxMACHINES,..", help="default: %(default)s"
    )
    parser.add_argument("--repeats", type=int, default=3, metavar="N", help="instances a size; default: %(default)s")
    parser.add_argument(
        "--plain",
        type=int,
        default=200,
        metavar="N",
        help="plain and Gavel's to this many jobs; default: %(default)s",
    )
    parser.add_argument(
        "--trace",
        type=int,
        default=10_000,
        metavar="JOBS",
        help="jobs of the simulated trace, 0 for none; default: %(default)s",
    )
    parser.add_argument("--seed", type=int, default=1, help="seed of the first instance (default: %(default)s)")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=_allox)


def _allox(options: argparse.Namespace) -> int:
    plan = _plan(options)
    import msgspec

    from themis_lab.bench.allox_run import run_plan, table

    rows = []
    for row in run_plan(plan):
        sys.stderr.write(f"{row.kind}, {row.jobs} jobs on {row.machines} machines: done\n")
        rows.append(row)
    document = {"benchmark": "allox", "plan": msgspec.to_builtins(plan), "rows": msgspec.to_builtins(rows)}
    sys.stdout.write((json.dumps(document) if options.json else table(rows)) + "\n")
    return int(any(row.is_over for row in rows))


def _plan(options: argparse.Namespace) -> AlloxBenchPlan:
    from themis_lab.bench.allox_run import AlloxBenchPlan

    for name, least in (("repeats", 1), ("plain", 0), ("trace", 0)):
        if getattr(options, name) < least:
            raise InputError(f"--{name} must be {least} or more", value=getattr(options, name))
    pairs = [part.strip().split("x") for part in options.sizes.split(",")]
    if not all(
        len(pair) == 2 and all(part.isascii() and part.isdigit() and int(part) for part in pair) for pair in pairs
    ):
        raise InputError("--sizes does not parse", value=options.sizes, remedy="write jobs and machines: 50x10,200x40")
    sizes = tuple(sorted({(int(jobs), int(machines)) for jobs, machines in pairs}))
    return AlloxBenchPlan(
        sizes=sizes, repeats=options.repeats, plain=options.plain, seed=options.seed, trace=options.trace
    )
