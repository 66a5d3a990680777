"""`themis bench resize`: time the resize of a job, compared with the start of bare processes."""

from __future__ import annotations

import argparse
import json
import sys
from typing import TYPE_CHECKING

from themis.errors import UnknownNameError
from themis.interruption import OneInterruption
from themis_cli.parsers import Subcommands

if TYPE_CHECKING:
    from themis_lab.bench.resize_run import ResizeBenchPlan


def add_to(group: Subcommands) -> None:
    """Add `resize` to `bench`."""
    parser = group.add_parser("resize", help="time resizes of a job, phase by phase")
    parser.add_argument("--engine", default="local", metavar="NAME", help="local, yarn; default: %(default)s")
    parser.add_argument(
        "--program", default="digits_dense", metavar="NAME", help="digits_dense, replay; default: %(default)s"
    )
    parser.add_argument("--repeat", type=int, default=5, metavar="N", help="rounds; default: %(default)s")
    parser.add_argument(
        "--heartbeat-s", type=float, default=1.0, metavar="S", help="of app masters and nodes to YARN; %(default)s"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=_resize)


def _resize(options: argparse.Namespace) -> int:
    plan = _plan(options)
    from themis_lab.bench.resize_output import document, table
    from themis_lab.bench.resize_run import Round, run_rounds

    rounds: list[Round] = []
    # SIGTERM is treated like Ctrl-C. Otherwise the daemons of the benchmark's cluster would keep running.
    with OneInterruption():
        for item in run_rounds(plan):
            if isinstance(item, Round):
                rounds.append(item)
            else:
                sys.stderr.write(f"{item}\n")
    sys.stdout.write((json.dumps(document(plan, rounds)) if options.json else table(plan, rounds)) + "\n")
    return 0


def _plan(options: argparse.Namespace) -> ResizeBenchPlan:
    from themis_lab.bench.resize_apps import Program
    from themis_lab.bench.resize_run import EngineName, ResizeBenchPlan

    for kind, name, known in (
        ("engine of the benchmark", options.engine, EngineName),
        ("program of the benchmark", options.program, Program),
    ):
        if name not in list(known):
            raise UnknownNameError(kind, name, [str(each) for each in known])
    return ResizeBenchPlan(
        engine=EngineName(options.engine),
        program=Program(options.program),
        repeat=options.repeat,
        heartbeat_s=options.heartbeat_s,
    )
