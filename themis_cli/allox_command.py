"""`themis allox`: the schedule of least total completion time for one instance of jobs and machines."""

from __future__ import annotations

import argparse
import json
import sys
import time
from typing import TYPE_CHECKING

from themis.config.examples import ExampleKind
from themis_cli.instance_input import printable, read_content
from themis_cli.parsers import Subcommands

if TYPE_CHECKING:
    from rm_plugin.policies.allox.decision import Place
    from rm_plugin.policies.allox.instance_file import Instance
    from rm_plugin.policies.allox.matching import Matching


def add_to(commands: Subcommands) -> None:
    """Add `allox`."""
    parser = commands.add_parser("allox", help="schedule jobs over interchangeable devices by AlloX")
    parser.add_argument(
        "--instance",
        required=True,
        metavar="FILE",
        help="a JSON file, or the name of an example; `-` for standard input",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=_allox)


def _allox(options: argparse.Namespace) -> int:
    content, name = read_content(options.instance, ExampleKind.ALLOX_INSTANCE)
    # Imported late, because the assignment solver is slow to import.
    from rm_plugin.policies.allox.decision import match_jobs, places_of
    from rm_plugin.policies.allox.instance_file import read_instance
    from rm_plugin.policies.allox.values import arrival_order

    instance = read_instance(content, name)
    # In an order of its own, so that the order of the file does not choose among equal schedules.
    jobs = sorted(instance.jobs, key=arrival_order)
    machines = sorted(instance.machines, key=lambda machine: machine.machine_id)
    began_s = time.perf_counter()
    matching = match_jobs(jobs, machines, instance.now_s)
    solve_s = time.perf_counter() - began_s
    places = places_of(jobs, machines, matching, instance.now_s)
    document = _document(instance, [machine.machine_id for machine in machines], matching, places, solve_s)
    if options.json:
        sys.stdout.write(json.dumps(document, allow_nan=False) + "\n")
    else:
        _print_table(instance, document, places)
    return 0


def _document(
    instance: Instance, machine_ids: list[str], matching: Matching, places: dict[str, Place], solve_s: float
) -> dict[str, object]:
    schedule: dict[str, list[str]] = {machine.machine_id: [] for machine in instance.machines}
    for job_id, place in sorted(places.items(), key=lambda entry: -entry[1].position_from_end):
        schedule[place.machine_id].append(job_id)
    arrival_s = {job.job_id: job.arrival_s for job in instance.jobs}
    waited_s = sum(instance.now_s - arrival for arrival in arrival_s.values())
    offered = dict(zip(machine_ids, matching.positions_offered, strict=True))
    return {
        "status": "optimal" if matching.is_certified else "feasible",
        "total_completion_s": matching.total_s + waited_s,
        "mean_completion_s": (matching.total_s + waited_s) / len(places) if places else None,
        "completion_s": {job.job_id: places[job.job_id].end_s - job.arrival_s for job in instance.jobs},
        "schedule": schedule,
        "start_now": [
            [schedule[machine.machine_id][0], machine.machine_id]
            for machine in instance.machines
            if machine.is_idle and schedule[machine.machine_id]
        ],
        "certificate": {
            "proved": matching.is_certified,
            "positions_used": {machine_id: len(queue) for machine_id, queue in schedule.items()},
            "positions_offered": {machine_id: offered[machine_id] for machine_id in schedule},
            "jobs": len(places),
        },
        "solve_s": solve_s,
    }


def _print_table(instance: Instance, document: dict[str, object], places: dict[str, Place]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    # Without a terminal rich assumes 80 columns, too few for long ids.
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 120)
    table = Table(box=None, pad_edge=False)
    for heading in ("machine", "type", "job", "user"):
        table.add_column(heading, overflow="fold")
    for heading in ("k", "starts s", "ends s"):
        table.add_column(heading, justify="right")
    types = {machine.machine_id: machine.type_name for machine in instance.machines}
    users = {job.job_id: job.user for job in instance.jobs}
    for job_id, place in sorted(places.items(), key=lambda entry: (entry[1].machine_id, entry[1].start_s, entry[0])):
        names = (place.machine_id, types[place.machine_id], job_id, users[job_id])
        numbers = (f"{place.position_from_end}", f"{place.start_s:.10g}", f"{place.end_s:.10g}")
        table.add_row(*(Text(printable(cell)) for cell in (*names, *numbers)))
    console.print(table)
    starts = document["start_now"]
    assert isinstance(starts, list)
    now = ", ".join(f"{printable(job)} on {printable(machine)}" for job, machine in starts) or "nothing"
    for line in (
        f"{document['status']}: total completion time {document['total_completion_s']:.10g} s, {len(places)} jobs",
        f"start now: {now}",
        f"solved in {document['solve_s']:.4f} s",
    ):
        console.print(Text(line), soft_wrap=True)
