"""Run `bench profiler`: read every log from a file with the parts that the app master uses."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from am.profiler.event_format import EventReader, Role
from am.profiler.follower import MAX_POLL_BYTES, FileFollower, LogFollower
from am.profiler.parser import LogReader
from am.profiler.profile import JobProfile
from am.profiler.records import Record
from themis.cluster import Level
from themis.values import Value
from themis_lab.bench.profiler_logs import SOURCES, Kind, write

MB = 1_000_000


class ProfilerBenchPlan(Value, frozen=True, kw_only=True):
    """The kinds of logs, the size of each in MB (10^6 bytes), and the number of runs, of which the best counts."""

    kinds: tuple[Kind, ...] = tuple(Kind)
    size_mb: int = 16
    repeats: int = 3
    seed: int = 1


class Row(Value, frozen=True, kw_only=True):
    """One kind of log. Rates are in 10^6 bytes per second of one core's time.

    Attributes:
        kind: The content of the log.
        mb: Its size.
        records: Number of records read.
        mb_per_s: Rate of reading the file, finding and parsing records, and feeding them to the job's profile.
        limit_mb_per_s: Rate of reading the file and splitting it into lines, and nothing else.
        share_of_limit: The first rate over the second.
        us_a_record: Microseconds per record, of the whole time.
    """

    kind: Kind
    mb: float
    records: int
    mb_per_s: float
    limit_mb_per_s: float
    share_of_limit: float
    us_a_record: float | None


def run_plan(plan: ProfilerBenchPlan) -> Iterator[Row]:
    """The rows, as they are measured."""
    with tempfile.TemporaryDirectory(prefix="bench-profiler-") as folder:
        for kind in plan.kinds:
            path = Path(folder) / kind
            path.write_bytes(write(kind, plan.seed, plan.size_mb * MB))
            yield _measure(kind, path, plan.repeats)
            path.unlink()


def _measure(kind: Kind, path: Path, repeats: int) -> Row:
    read = _read_events if SOURCES[kind].events else _read_log
    # Alternate, so that other load of the machine affects both equally.
    runs = [(_timed(lambda: read(path)), _timed(lambda: _split(path))) for _ in range(repeats)]
    seconds = min(ours for (ours, _), _ in runs)
    limit_s = min(limit for _, (limit, _) in runs)
    records, mb = runs[0][0][1], path.stat().st_size / MB
    return Row(
        kind=kind,
        mb=mb,
        records=records,
        mb_per_s=mb / seconds,
        limit_mb_per_s=mb / limit_s,
        share_of_limit=limit_s / seconds,
        us_a_record=1e6 * seconds / records if records else None,
    )


def _timed(work: Callable[[], int]) -> tuple[float, int]:
    begun_s = time.process_time()
    result = work()
    return max(time.process_time() - begun_s, 1e-9), result


def _read_log(path: Path) -> int:
    follower, reader = LogFollower(path), LogReader()
    try:
        return _fed(reader.read(data) for data in iter(follower.read, b""))
    finally:
        follower.close()


def _read_events(path: Path) -> int:
    follower, reader = FileFollower(path), EventReader(Role.TRAINING)
    try:
        return _fed(reader.read(part.data) for parts in iter(follower.poll, []) for part in parts)
    finally:
        follower.close()


def _fed(reads: Iterable[list[Record]]) -> int:
    """Feed a job's profile. Returns the number of records."""
    profile = JobProfile()
    profile.started(1, Level.SLOT)
    fed = 0
    for records in reads:
        for record in records:
            profile.feed(record)
        fed += len(records)
    return fed


def _split(path: Path) -> int:
    """The lower bound of any reader of lines."""
    lines = 0
    with path.open("rb", buffering=0) as file:
        rest = b""
        while data := file.read(MAX_POLL_BYTES):
            *whole, rest = (rest + data).split(b"\n")
            lines += len(whole)
    return lines
