"""Read Gavel's trace format and its table of measured throughputs. Every job becomes an app."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from random import Random

from msgspec import field
from msgspec.structs import replace

from rm_plugin.arbiter.seeds import child_seed
from themis.apps import CRUDE_SLOWDOWN, Slowdown
from themis.errors import InputError
from themis.values import Value
from themis_lab.simulator.workload import AppTrace, JobTrace, Workload
from themis_lab.simulator.workloads.bad_rows import BadRows
from themis_lab.simulator.workloads.fields import number_of_field
from themis_lab.simulator.workloads.jobs import MIN_ITERATIONS, draw_curve, shape_of
from themis_lab.simulator.workloads.table_lines import numbered_lines, table_columns, table_row, text_of

DEFAULT_GPU_TYPE = "v100"
FIELDS = 12

_JOB_TYPE = re.compile(r"(?P<model>\S.*?)(?: \(batch size (?P<batch>\d+)\))?")
_COLUMNS = ("model", "batch_size", "num_gpus", "gpu_type", "steps_per_s_consolidated", "steps_per_s_unconsolidated")
_SOURCE = (
    "a trace in Gavel's format: every job one app, of a number of steps at the throughput measured for its GPUs on one "
    "server; S across machines from the throughput measured there; loss curves drawn"
)


class GavelJob(Value, frozen=True, kw_only=True):
    """A line of the trace.

    Attributes:
        batch: Batch size; empty for a model without one.
        steps: Steps to run, by all GPUs together.
        gpus: Its scale factor.
        duration_s: Its duration on its GPUs, according to the trace.
    """

    model: str
    batch: str
    steps: int
    gpus: int
    duration_s: float
    arrival_s: float


class Throughput(Value, frozen=True, kw_only=True):
    """Steps per second on one server, and on several.

    `speed_by_type`: the steps per second on one server of each measured type of GPU, relative to those of this one. It
    is empty if the table has one type.
    """

    consolidated: float
    unconsolidated: float
    speed_by_type: Mapping[str, float] = field(default_factory=dict)


Throughputs = Mapping[tuple[str, str, int], Throughput]
"""By model, batch size and number of GPUs."""


def read_throughputs(path: Path, gpu_type: str = DEFAULT_GPU_TYPE, bad: BadRows | None = None) -> Throughputs:
    """Read the throughputs of one type of GPU, the reference, without rows whose throughput is 0.

    Args:
        path: The table.
        gpu_type: The type.
        bad: What happens to rows that cannot be read; by default the first is an error.

    Raises:
        InputError: The file cannot be read, is malformed, or lacks the type. The message names file, line and field.
    """
    found: dict[tuple[str, str, int], Throughput] = {}
    by_type: dict[tuple[str, str, int], dict[str, float]] = {}
    types: set[str] = set()
    lines = numbered_lines(path, "name the throughputs.csv that belongs to the trace")
    columns = table_columns(lines, _COLUMNS, path)

    def add(numbered: tuple[int, bytes]) -> None:
        place = f"{path}, line {numbered[0]}"
        row = table_row(columns, numbered[1], place)
        _check_complete(row, place)
        key = (row["model"], row["batch_size"], _whole(row["num_gpus"], f"{place}: num_gpus"))
        # The public table has 0 for throughputs that were not measured.
        steps_per_s = _number(row[_COLUMNS[4]], f"{place}: {_COLUMNS[4]}")
        if row["gpu_type"] == gpu_type and steps_per_s > 0.0:
            found[key] = Throughput(
                consolidated=_positive(row[_COLUMNS[4]], f"{place}: {_COLUMNS[4]}"),
                unconsolidated=_positive(row[_COLUMNS[5]], f"{place}: {_COLUMNS[5]}"),
            )
        types.add(row["gpu_type"])
        if steps_per_s > 0.0:
            by_type.setdefault(key, {})[row["gpu_type"]] = steps_per_s

    (bad or BadRows()).read(lines, add)
    if not types:
        raise InputError(f"{path} holds no throughput", remedy="name the throughputs.csv that belongs to the trace")
    if gpu_type not in types:
        remedy = f"known: {', '.join(sorted(types))}"
        raise InputError(f"{path} has no such type of GPU", value=gpu_type, remedy=remedy)
    if len(types) == 1:
        return found
    return {
        key: replace(speed, speed_by_type={name: rate / speed.consolidated for name, rate in by_type[key].items()})
        for key, speed in found.items()
    }


def _check_complete(row: Mapping[str, str], place: str) -> None:
    """Raise InputError for a row that ends before the last of the columns needed."""
    for name in _COLUMNS:
        if name not in row:
            raise InputError(f"{place}: {name} is missing", remedy=f"it needs {_COLUMNS}")


def read_gavel_trace(path: Path, bad: BadRows | None = None) -> tuple[GavelJob, ...]:
    """Read the jobs of a tab-separated trace. Raises InputError that names file, line and field.

    Args:
        path: The trace.
        bad: What happens to lines that cannot be read; by default the first is an error.
    """
    lines = numbered_lines(path, "name a trace as Gavel writes it")

    def job_of(numbered: tuple[int, bytes]) -> GavelJob:
        place = f"{path}, line {numbered[0]}"
        return _job(text_of(numbered[1], place), place)

    return tuple((bad or BadRows()).read(lines, job_of))


def from_gavel(
    jobs: tuple[GavelJob, ...], throughputs: Throughputs, seed: int, name: str, bad: BadRows | None = None
) -> Workload:
    """Return the workload of a trace. It begins with the first arrival.

    Work: a step is an iteration. A job on its GPUs on one server takes `steps / throughput` seconds, so an iteration
    takes `gpus / throughput` seconds on one GPU at S = 1. For example, 2 GPUs at 10 steps/s give 0.2 s. If the table
    lacks the throughput, work follows from the trace's duration, with 1,024 iterations.

    Speed: relative to the reference type, on each type of GPU for which the table has the throughput.

    S: 1 within a slot and a machine, since work is measured by the throughput on one server. Within a rack and across
    racks it is the ratio of the throughputs on one server and on several, at least 1. Without a throughput it is the
    crude S.

    `bad` says what happens to jobs that cannot be, and which lines were left out before.
    """
    bad = bad or BadRows()
    ordered = sorted(jobs, key=lambda job: job.arrival_s)
    width = len(str(len(ordered) - 1))
    named = [(f"app-{n:0{width}d}", job) for n, job in enumerate(ordered)]
    made = bad.read(named, lambda each: (*each, _job_trace(*each, throughputs, seed)))
    if not made:
        raise InputError(f"{name} holds no job", remedy=bad.gaps)
    first_s = made[0][1].arrival_s
    apps = tuple(
        AppTrace(name=app, arrival_s=job.arrival_s - first_s, jobs=(trace,), model=job.model)
        for app, job, trace in made
    )
    lacking = sum((job.model, job.batch, job.gpus) not in throughputs for _, job, _ in made)
    unknown = f"the throughput of {lacking} of the {len(made)} jobs is not known, their durations stand in for it"
    gaps = "; ".join(filter(None, (unknown if lacking else "", bad.gaps)))
    return Workload(name=name, apps=apps, source=f"{name}: {'; '.join(filter(None, (_SOURCE, gaps)))}.", gaps=gaps)


def _job_trace(name: str, job: GavelJob, throughputs: Throughputs, seed: int) -> JobTrace:
    speed = throughputs.get((job.model, job.batch, job.gpus))
    steps = job.steps if speed else MIN_ITERATIONS
    serial_s = job.gpus / speed.consolidated if speed else job.gpus * job.duration_s / steps
    slowdown = _measured_slowdown(speed.consolidated, speed.unconsolidated) if speed else CRUDE_SLOWDOWN
    try:
        return JobTrace(
            job_id="j000",
            iterations_total=steps,
            serial_iteration_s=serial_s,
            slowdown=slowdown,
            shape=shape_of(job.gpus, rigid=True),
            curve=draw_curve(steps, Random(child_seed(seed, "gavel", name))),
            speed_by_device=speed.speed_by_type if speed else {},
        )
    except InputError as error:
        place = f"the job that arrives at {job.arrival_s:g} s, {name},"
        raise InputError(f"{place} cannot be: {error.what}", value=error.value) from None


@cache
def _measured_slowdown(consolidated: float, unconsolidated: float) -> Slowdown:
    across = max(1.0, consolidated / unconsolidated)
    return Slowdown(1.0, 1.0, across, across)


def _job(line: str, place: str) -> GavelJob:
    fields = line.split("\t")
    if len(fields) != FIELDS:
        raise InputError(f"{place}: {len(fields)} fields in place of {FIELDS}", remedy="fields are parted by tabs")
    match = _JOB_TYPE.fullmatch(fields[0].strip())
    if match is None:
        raise InputError(f"{place}: job type is missing", value=fields[0])
    return GavelJob(
        model=match["model"],
        batch=match["batch"] or "",
        steps=_whole(fields[5], f"{place}: total steps"),
        gpus=_whole(fields[6], f"{place}: scale factor"),
        duration_s=_positive(fields[10], f"{place}: duration"),
        arrival_s=_number(fields[11], f"{place}: arrival"),
    )


def _whole(text: str | None, place: str) -> int:
    number = _positive(text, place)
    if number != int(number):
        raise InputError(f"{place}: not a whole number", value=text)
    return int(number)


def _positive(text: str | None, place: str) -> float:
    number = _number(text, place)
    if not number > 0.0:
        raise InputError(f"{place}: must be above 0", value=text)
    return number


def _number(text: str | None, place: str) -> float:
    number = number_of_field(text)
    if number is None:
        raise InputError(f"{place}: not a number of 0 or more", value=text)
    return number
