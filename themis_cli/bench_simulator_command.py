"""`themis bench simulator`: measure the simulator's time, memory and growth, compared with other simulators."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from themis.errors import InputError, UnknownNameError
from themis_cli.parsers import Subcommands

if TYPE_CHECKING:
    from themis_lab.bench.simulator_cases import Case, Part, SimulatorBenchPlan, Size
    from themis_lab.bench.simulator_run import Row

_SIZES = "80/16,400/80,1000/200,1000/800,4000/200,2000/400,4000/800,10000/2000"
_PARTS = "gavel-120,gavel-900,w1,growth"


def add_to(group: Subcommands) -> None:
    """Add `simulator` to `bench`."""
    parser = group.add_parser("simulator", help="time whole simulations, each in a fresh process")
    parts = parser.add_mutually_exclusive_group()
    parts.add_argument("--parts", default=_PARTS, metavar="PART,..", help="default: %(default)s")
    parts.add_argument("--growth", dest="parts", action="store_const", const="growth", help="short for --parts growth")
    parser.add_argument(
        "--sizes", default=_SIZES, metavar="GPUS/APPS,..", help="sizes of the growth part (default: %(default)s)"
    )
    parser.add_argument("--policy", default="themis", metavar="NAME", help="default: %(default)s")
    parser.add_argument("--seed", type=int, default=1, help="seed of all random choices (default: %(default)s)")
    parser.add_argument("--trace", type=Path, default=None, metavar="FILE", help="the public trace of 120 jobs")
    parser.add_argument("--throughputs", type=Path, default=None, metavar="FILE", help="its table of throughputs")
    parser.add_argument(
        "--repeats", type=int, default=3, metavar="N", help="runs of each part but the growth; default: %(default)s"
    )
    parser.add_argument("--budget-s", type=float, default=None, metavar="S", help="seconds for all")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=_simulator)


def _simulator(options: argparse.Namespace) -> int:
    plan = _plan(options)
    from themis_lab.bench.simulator_output import document, table
    from themis_lab.bench.simulator_run import run_cases

    rows = _follow(run_cases(plan))
    sys.stdout.write((json.dumps(document(plan, rows)) if options.json else table(rows)) + "\n")
    return 0


def _plan(options: argparse.Namespace) -> SimulatorBenchPlan:
    from rm_plugin.policies.registry import make_policy
    from themis_lab.bench.simulator_cases import SimulatorBenchPlan

    make_policy(options.policy)
    return SimulatorBenchPlan(
        parts=_parts(options.parts),
        sizes=_sizes(options.sizes),
        policy=options.policy,
        seed=options.seed,
        budget_s=options.budget_s,
        trace=options.trace,
        throughputs=options.throughputs,
        repeats=options.repeats,
    )


def _parts(text: str) -> list[Part]:
    from themis_lab.bench.simulator_cases import Part

    known = [str(part) for part in Part]
    for name in text.split(","):
        if name not in known:
            raise UnknownNameError("part of the benchmark", name, known)
    return [Part(name) for name in text.split(",")]


def _sizes(text: str) -> list[Size]:
    from themis_lab.bench.simulator_cases import Size

    found = []
    for part in text.split(","):
        gpus, _, apps = part.strip().partition("/")
        if not all(number.isascii() and number.isdigit() for number in (gpus, apps)):
            raise InputError("--sizes does not parse", value=text, remedy="write GPUS/APPS: 80/16,400/80")
        found.append(Size(int(gpus), int(apps)))
    return found


def _follow(items: Iterable[Case | Row]) -> list[Row]:
    """Return the rows. Meanwhile the case that runs is named on standard error."""
    from themis_lab.bench.simulator_run import Row

    rows: list[Row] = []
    for item in items:
        if not isinstance(item, Row):
            sys.stderr.write(f"{item}: {item.source}\n")
            continue
        rows.append(item)
        took = f"left out: {item.left_out}" if item.wall_s is None else f"{item.wall_s:.3g} s"
        sys.stderr.write(f"{item.part} {item.gpus}/{item.apps}: {took}\n")
    return rows
