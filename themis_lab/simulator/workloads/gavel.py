"""Read Gavel's trace format and its table of measured throughputs. Every job becomes an app."""

from __future__ import annotations

import csv
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


def unreadable(error: Exception) -> str:
    """Return in few words why a file could not be read."""
    return str(error.strerror) if isinstance(error, OSError) else "it is not the text that it should be"


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
    try:
        with path.open(newline="", encoding="utf-8-sig") as stream:
            reader = csv.DictReader(stream)
            lacking = [name for name in _COLUMNS if name not in (reader.fieldnames or ())]
            if lacking:
                raise InputError(f"{path}, line 1: column {lacking[0]} is missing", remedy=f"it needs {_COLUMNS}")

            def add(row: Mapping[str, str]) -> None:
                place = f"{path}, line {reader.line_num}"
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

            (bad or BadRows()).read(reader, add)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        remedy = "name the throughputs.csv that belongs to the trace"
        raise InputError(f"cannot read {path}", value=unreadable(error), remedy=remedy) from None
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


def _check_complete(row: Mapping[str, str | None], place: str) -> None:
    """Raise InputError for a row that ends before the last of the columns needed."""
    for name in _COLUMNS:
        if row[name] is None:
            raise InputError(f"{place}: {name} is missing", remedy=f"it needs {_COLUMNS}")


def read_gavel_trace(path: Path, bad: BadRows | None = None) -> tuple[GavelJob, ...]:
    """Read the jobs of a tab-separated trace. Raises InputError that names file, line and field.

    Args:
        path: The trace.
        bad: What happens to lines that cannot be read; by default the first is an error.
    """
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(
            f"cannot read {path}", value=unreadable(error), remedy="name a trace as Gavel writes it"
        ) from None
    numbered = ((number, line) for number, line in enumerate(lines, start=1) if line.strip())
    return tuple((bad or BadRows()).read(numbered, lambda row: _job(row[1], f"{path}, line {row[0]}")))


def from_gavel(
    jobs: tuple[GavelJob, ...], throughputs: Throughputs, seed: int, name: str, left_out: str = ""
) -> Workload:
    """Return the workload of a trace. It begins with the first arrival.

    Work: a step is an iteration. A job on its GPUs on one server takes `steps / throughput` seconds, so an iteration
    takes `gpus / throughput` seconds on one GPU at S = 1. For example, 2 GPUs at 10 steps/s give 0.2 s. If the table
    lacks the throughput, work follows from the trace's duration, with 1,024 iterations.

    Speed: relative to the reference type, on each type of GPU for which the table has the throughput.

    S: 1 within a slot and a machine, since work is measured by the throughput on one server. Within a rack and across
    racks it is the ratio of the throughputs on one server and on several, at least 1. Without a throughput it is the
    crude S.

    `left_out` describes parts of the trace that are not in `jobs`.
    """
    if not jobs:
        raise InputError(f"{name} holds no job")
    ordered = sorted(jobs, key=lambda job: job.arrival_s)
    width = len(str(len(ordered) - 1))
    apps = tuple(_app(f"app-{n:0{width}d}", job, ordered[0], throughputs, seed) for n, job in enumerate(ordered))
    lacking = sum((job.model, job.batch, job.gpus) not in throughputs for job in ordered)
    unknown = f"the throughput of {lacking} of the {len(ordered)} jobs is not known, their durations stand in for it"
    gaps = "; ".join(filter(None, (unknown if lacking else "", left_out)))
    return Workload(name=name, apps=apps, source=f"{name}: {'; '.join(filter(None, (_SOURCE, gaps)))}.", gaps=gaps)


def _app(name: str, job: GavelJob, first: GavelJob, throughputs: Throughputs, seed: int) -> AppTrace:
    speed = throughputs.get((job.model, job.batch, job.gpus))
    steps = job.steps if speed else MIN_ITERATIONS
    serial_s = job.gpus / speed.consolidated if speed else job.gpus * job.duration_s / steps
    slowdown = _measured_slowdown(speed.consolidated, speed.unconsolidated) if speed else CRUDE_SLOWDOWN
    try:
        trace = JobTrace(
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
    return AppTrace(name=name, arrival_s=job.arrival_s - first.arrival_s, jobs=(trace,), model=job.model)


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
