"""`themis bench checkpoint`: time checkpoints to and from HDFS, compared with plain WebHDFS requests."""

from __future__ import annotations

import argparse
import json
import math
import sys
from typing import TYPE_CHECKING

from themis.errors import InputError
from themis_cli.parsers import Subcommands

if TYPE_CHECKING:
    from themis_lab.bench.checkpoint_run import CheckpointBenchPlan


def add_to(group: Subcommands) -> None:
    """Add `checkpoint` to `bench`."""
    parser = group.add_parser("checkpoint", help="time checkpoints on HDFS, compared with plain requests")
    parser.add_argument("--uri", required=True, metavar="URI", help="a folder on HDFS to work in: hdfs://, webhdfs://")
    parser.add_argument("--sizes", default="10,100", metavar="MB,..", help="default: %(default)s")
    parser.add_argument("--rounds", type=int, default=3, metavar="N", help="the median counts; default: %(default)s")
    parser.add_argument("--seed", type=int, default=1, help="seed of the content (default: %(default)s)")
    parser.add_argument(
        "--wait-s", type=float, default=10.0, metavar="S", help="how long to wait while HDFS is unavailable"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=_checkpoint)


def _checkpoint(options: argparse.Namespace) -> int:
    plan = _plan(options)
    from themis_lab.bench.checkpoint_output import document, table
    from themis_lab.bench.checkpoint_run import Row, run_sizes

    rows: list[Row] = []
    for item in run_sizes(plan):
        if isinstance(item, Row):
            rows.append(item)
        else:
            sys.stderr.write(f"{item}\n")
    sys.stdout.write((json.dumps(document(plan, rows)) if options.json else table(rows)) + "\n")
    return 0


def _plan(options: argparse.Namespace) -> CheckpointBenchPlan:
    sizes = [part.strip() for part in options.sizes.split(",")]
    if not all(size.isascii() and size.isdigit() for size in sizes):
        raise InputError("--sizes does not parse", value=options.sizes, remedy="write numbers of MB: 10,100")
    if not 0.0 <= options.wait_s < math.inf:
        raise InputError("--wait-s must be a number of seconds", value=options.wait_s)
    try:
        from themis_lab.bench.checkpoint_run import CheckpointBenchPlan
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("hdfs", "requests"):
            raise
        raise InputError("HDFS needs the package `hdfs`", remedy="pip install 'themis-scheduler[hdfs]'") from error
    return CheckpointBenchPlan(
        uri=options.uri,
        sizes_mb=sorted({int(size) for size in sizes}),
        rounds=options.rounds,
        seed=options.seed,
        wait_s=options.wait_s,
    )
