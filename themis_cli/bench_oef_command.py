"""`themis bench oef`: time OEF's programmes by number of tenants, and with `--peers` those of other systems."""

from __future__ import annotations

import argparse
import json
import sys
from typing import TYPE_CHECKING

from themis.errors import InputError
from themis_cli.parsers import Subcommands

if TYPE_CHECKING:
    from themis_lab.bench.oef_run import OefBenchPlan


def add_to(group: Subcommands) -> None:
    """Add `oef` to `bench`."""
    parser = group.add_parser("oef", help="time OEF's programmes, row generation against the full programme")
    parser.add_argument("--sizes", default="20,100,300", metavar="TENANTS,..", help="default: %(default)s")
    parser.add_argument("--types", type=int, default=10, metavar="N", help="GPU types; default: %(default)s")
    parser.add_argument("--repeats", type=int, default=3, metavar="N", help="instances a size; default: %(default)s")
    parser.add_argument(
        "--full", type=int, default=100, metavar="N", help="solve the full programme to this size; default: %(default)s"
    )
    parser.add_argument(
        "--peers",
        type=int,
        default=0,
        metavar="N",
        help="solve by cvxpy and ECOS too, to this size; needs the extra `peers`; default: %(default)s, none",
    )
    parser.add_argument("--seed", type=int, default=1, help="seed of the first instance (default: %(default)s)")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=_oef)


def _oef(options: argparse.Namespace) -> int:
    plan = _plan(options)
    from themis_lab.bench.oef_run import document, run_plan, table

    rows = []
    for row in run_plan(plan):
        sys.stderr.write(f"{row.mode}, {row.tenants} tenants: done\n")
        rows.append(row)
    sys.stdout.write((json.dumps(document(plan, rows)) if options.json else table(rows)) + "\n")
    return int(any(row.is_over for row in rows))


def _plan(options: argparse.Namespace) -> OefBenchPlan:
    from themis_lab.bench.oef_run import OefBenchPlan

    for name, least in (("types", 1), ("repeats", 1), ("full", 0), ("peers", 0)):
        if getattr(options, name) < least:
            raise InputError(f"--{name} must be {least} or more", value=getattr(options, name))
    parts = [part.strip() for part in options.sizes.split(",")]
    if not all(part.isascii() and part.isdigit() and int(part) for part in parts):
        raise InputError("--sizes does not parse", value=options.sizes, remedy="write numbers of tenants: 20,100")
    sizes = tuple(sorted({int(part) for part in parts}))
    return OefBenchPlan(
        sizes=sizes,
        types=options.types,
        repeats=options.repeats,
        full=options.full,
        peers=options.peers,
        seed=options.seed,
    )
