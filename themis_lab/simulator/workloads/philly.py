"""Read Microsoft's Philly trace, as a flat table or the public JSON, and group its jobs into bursts, used as apps."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from themis.errors import InputError
from themis.sums import sum_in_order
from themis.values import Value
from themis_lab.simulator.costs import A_CENTURY_S
from themis_lab.simulator.workloads.bad_rows import BadRows
from themis_lab.simulator.workloads.fields import number_of_field
from themis_lab.simulator.workloads.table_lines import numbered_lines, table_columns, table_row

BURST_GAP_S = 30.0
"""Maximum seconds between the submissions of two jobs of one burst."""

_COLUMNS = ("timestamp", "duration", "num_gpus", "cluster")
_EPOCH = datetime(1970, 1, 1)
_MAX_DIGITS = 9
_MIN_S = 1e-3


class PhillyJob(Value, frozen=True, kw_only=True):
    """A job of the trace. `submitted_s` counts the trace's own wall clock from 1970; `user` is empty where unknown."""

    submitted_s: float
    duration_s: float
    gpus: int
    virtual_cluster: str
    user: str = ""

    @property
    def gpu_s(self) -> float:
        """The GPU seconds of the run."""
        return self.gpus * self.duration_s


class PhillyTrace(Value, frozen=True, kw_only=True):
    """The jobs of a trace that ran. `gaps` describes the others, as in a Workload."""

    jobs: tuple[PhillyJob, ...]
    gaps: str = ""


class Burst(Value, frozen=True, kw_only=True):
    """Jobs that are used as one app, in order of submission."""

    jobs: tuple[PhillyJob, ...]

    @property
    def submitted_s(self) -> float:
        """The time of the first submission."""
        return self.jobs[0].submitted_s

    @property
    def gpus(self) -> int:
        """The GPUs of each job."""
        return self.jobs[0].gpus

    @property
    def gpu_s(self) -> float:
        """The GPU seconds of all jobs."""
        return sum_in_order(job.gpu_s for job in self.jobs)


def read_philly_csv(path: Path, *, skip_bad_rows: bool = False) -> PhillyTrace:
    """Read the flat table with columns timestamp, duration, num_gpus and cluster; other columns are ignored.

    Jobs that never ran, of duration 0, are left out and counted, and so are invalid rows if `skip_bad_rows` is set.

    Raises:
        InputError: The file cannot be read, lacks a column, or has an invalid field. The message names file, line and
            field.
    """
    bad = BadRows(skip=skip_bad_rows)
    lines = numbered_lines(path, "check the path")
    columns = table_columns(lines, _COLUMNS, path)

    def job_of(numbered: tuple[int, bytes]) -> PhillyJob:
        place = f"{path}, line {numbered[0]}"
        return _csv_job(table_row(columns, numbered[1], place), place)

    jobs = bad.read(lines, job_of)
    ran = tuple(job for job in jobs if job.duration_s > 0.0)
    return PhillyTrace(jobs=ran, gaps=_gaps(len(jobs) - len(ran), len(jobs), 0, bad))


def read_philly_json(path: Path, *, skip_bad_rows: bool = False) -> PhillyTrace:
    """Read the released `cluster_job_log`: a list of jobs, each with its attempts.

    A job's duration is the sum over its attempts, and its GPUs those of the largest attempt. Attempts without an end or
    without GPUs are ignored. Jobs without a valid attempt are left out, and so are invalid jobs if `skip_bad_rows` is
    set. `gaps` counts them all.

    Raises:
        InputError: The file cannot be read, or has an invalid field. The message names file, job number and field.
    """
    try:
        # Floats: Python refuses very long whole numbers. A field that is a number gets its own error later.
        log = json.loads(path.read_text(encoding="utf-8-sig"), parse_int=float)
    except OSError as error:
        raise InputError(f"cannot read {path}", value=error.strerror, remedy="check the path") from None
    except UnicodeDecodeError:
        raise InputError(f"cannot read {path}", value="it is not the text that it should be") from None
    except (json.JSONDecodeError, RecursionError) as error:
        line = f", line {error.lineno}" if isinstance(error, json.JSONDecodeError) else ""
        raise InputError(f"{path}{line}: not valid JSON", remedy="is it the public release?") from None
    if not isinstance(log, list):
        raise InputError(f"{path}: must hold a list of jobs", value=type(log).__name__)
    bad = BadRows(skip=skip_bad_rows)
    jobs = bad.read(enumerate(log, start=1), lambda entry: _json_job(entry[1], f"{path}, job {entry[0]}"))
    ran = tuple(job for job, _ in jobs if job is not None)
    unknown = sum(attempts for _, attempts in jobs)
    return PhillyTrace(jobs=ran, gaps=_gaps(len(jobs) - len(ran), len(jobs), unknown, bad))


def bursts_of(jobs: Iterable[PhillyJob], gap_s: float = BURST_GAP_S) -> tuple[Burst, ...]:
    """Group jobs into bursts: same virtual cluster, user if known, and GPUs, each at most `gap_s` after the previous.

    The gap counts from the previous job, not from the first one, so a burst may last longer than the gap. Jobs of the
    same second keep their order in the trace. Bursts are in order of their first submission.
    """
    bursts: list[list[PhillyJob]] = []
    newest: dict[tuple[str, str, int], list[PhillyJob]] = {}
    for job in sorted(jobs, key=lambda each: each.submitted_s):
        key = (job.virtual_cluster, job.user, job.gpus)
        burst = newest.get(key)
        if burst is None or job.submitted_s - burst[-1].submitted_s > gap_s:
            burst = newest[key] = []
            bursts.append(burst)
        burst.append(job)
    return tuple(Burst(jobs=tuple(burst)) for burst in bursts)


def _gaps(never_ran: int, jobs: int, unknown_attempts: int, bad: BadRows) -> str:
    never = f"{never_ran} of the {jobs} jobs have no time in which they ran: left out"
    unknown = f"{unknown_attempts} of the other jobs' attempts have no time or no GPUs: not counted"
    counted = [text for text, number in ((never, never_ran), (unknown, unknown_attempts)) if number]
    return "; ".join(filter(None, (*counted, bad.gaps)))


def _believed(job: PhillyJob, place: str) -> PhillyJob:
    """Return the job. Raises InputError if it ran under a millisecond, or more than a century of one GPU."""
    if job.duration_s > 0.0 and not (job.duration_s >= _MIN_S and job.gpu_s <= A_CENTURY_S):
        value = f"{job.duration_s:g} s on {job.gpus} GPUs"
        remedy = "a job takes a millisecond or more, and at most a century of one GPU"
        raise InputError(f"{place}: a duration that cannot be", value=value, remedy=remedy)
    return job


def _csv_job(row: Mapping[str, str], place: str) -> PhillyJob:
    job = PhillyJob(
        submitted_s=_seconds(row.get("timestamp"), f"{place}: timestamp"),
        duration_s=_duration(row.get("duration"), f"{place}: duration"),
        gpus=_gpus(row.get("num_gpus"), f"{place}: num_gpus"),
        virtual_cluster=_text(row.get("cluster"), f"{place}: cluster"),
    )
    return _believed(job, place)


def _json_job(entry: Any, place: str) -> tuple[PhillyJob | None, int]:
    """Return the job, or None if it never ran, and the number of its attempts without time or GPUs."""
    if not isinstance(entry, dict):
        raise InputError(f"{place}: must be a mapping", value=entry)
    attempts = entry.get("attempts")
    if not isinstance(attempts, list):
        raise InputError(f"{place}: attempts: must be a list", value=attempts)
    attempts_read = [
        _attempt(attempt, f"{place}: attempts[{number}]") for number, attempt in enumerate(attempts, start=1)
    ]
    ran = [each for each in attempts_read if each is not None and each[0] > 0.0]
    if not ran:
        return None, 0
    job = PhillyJob(
        submitted_s=_seconds(entry.get("submitted_time"), f"{place}: submitted_time"),
        duration_s=sum(seconds for seconds, _ in ran),
        gpus=max(gpus for _, gpus in ran),
        virtual_cluster=_text(entry.get("vc"), f"{place}: vc"),
        user=_text(entry.get("user"), f"{place}: user"),
    )
    return _believed(job, place), attempts_read.count(None)


def _attempt(attempt: Any, place: str) -> tuple[float, int] | None:
    """Return seconds and GPUs of an attempt, or None unless it has both."""
    if not isinstance(attempt, dict):
        raise InputError(f"{place}: must be a mapping", value=attempt)
    gpus = _detail_gpus(attempt.get("detail"), f"{place}.detail")
    begun, ended = attempt.get("start_time"), attempt.get("end_time")
    # The release writes an unknown time as "None".
    if not gpus or begun in (None, "None") or ended in (None, "None"):
        return None
    seconds = _seconds(ended, f"{place}.end_time") - _seconds(begun, f"{place}.start_time")
    if seconds < 0.0:
        raise InputError(f"{place}.end_time: lies before start_time", value=ended)
    return seconds, gpus


def _detail_gpus(detail: Any, place: str) -> int:
    if not isinstance(detail, list):
        raise InputError(f"{place}: must be a list", value=detail)
    machines = [machine.get("gpus") if isinstance(machine, dict) else None for machine in detail]
    if any(not isinstance(gpus, list) for gpus in machines):
        raise InputError(f"{place}: each entry needs a list of gpus", value=detail)
    return sum(len(gpus) for gpus in machines if gpus is not None)


def _seconds(value: object, place: str) -> float:
    """Parse a wall clock time of the trace into seconds. Its time zone is not converted."""
    try:
        moment = datetime.strptime(str(value).strip(), "%Y-%m-%d %H:%M:%S")
    except ValueError:
        raise InputError(f"{place}: not a time", value=value, remedy="written as in 2017-10-09 07:01:55") from None
    return (moment - _EPOCH) / timedelta(seconds=1)


def _duration(value: str | None, place: str) -> float:
    seconds = number_of_field(value)
    if seconds is None:
        raise InputError(f"{place}: not a number of seconds", value=value)
    return seconds


def _gpus(value: str | None, place: str) -> int:
    text = value or ""
    if not (text.isascii() and text.isdigit() and len(text) <= _MAX_DIGITS and int(text) > 0):
        raise InputError(f"{place}: not a number of GPUs", value=value)
    return int(text)


def _text(value: object, place: str) -> str:
    if not isinstance(value, str) or not value:
        raise InputError(f"{place}: is missing", value=value)
    return value
