"""`themis bench valuation`: measure how well and how fast an agent values bundles."""

from __future__ import annotations

import argparse
import json
import math
import sys
from typing import TYPE_CHECKING

from themis.errors import InputError
from themis_cli.parsers import Subcommands

if TYPE_CHECKING:
    from themis_lab.bench.valuation_run import ValuationBenchPlan


def add_to(group: Subcommands) -> None:
    """Add `valuation` to `bench`."""
    parser = group.add_parser("valuation", help="measure how far bids are from the best packing")
    parser.add_argument("--small", type=int, default=200, metavar="N", help="small apps; default: %(default)s")
    parser.add_argument("--large", type=int, default=12, metavar="N", help="apps of 100 jobs; default: %(default)s")
    parser.add_argument("--bids", type=int, default=24, metavar="N", help="bids to time; default: %(default)s")
    parser.add_argument(
        "--reference-s",
        type=float,
        default=0.0,
        metavar="N",
        help="seconds of CPU time to settle each bundle that the bound leaves open; default: %(default)s",
    )
    parser.add_argument("--seed", type=int, default=1, help="seed of the first app (default: %(default)s)")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=_valuation)


def _valuation(options: argparse.Namespace) -> int:
    plan = _plan(options)
    from themis_lab.bench.valuation_output import document, table
    from themis_lab.bench.valuation_run import run_plan

    rows = []
    for row in run_plan(plan):
        sys.stderr.write(f"{row.part}: done\n")
        rows.append(row)
    sys.stdout.write((json.dumps(document(plan, rows)) if options.json else table(rows)) + "\n")
    return 0


def _plan(options: argparse.Namespace) -> ValuationBenchPlan:
    from themis_lab.bench.valuation_run import ValuationBenchPlan

    counts = {name: getattr(options, name) for name in ("small", "large", "bids")}
    for name, value in counts.items():
        if value < 0:
            raise InputError(f"--{name} must be 0 or more", value=value)
    if not any(counts.values()):
        raise InputError("there is nothing to measure", remedy="give one of --small, --large and --bids")
    if not (math.isfinite(options.reference_s) and options.reference_s >= 0.0):
        raise InputError("--reference-s must be 0 or more and finite", value=options.reference_s)
    return ValuationBenchPlan(**counts, seed=options.seed, reference_s=options.reference_s)
