"""The benchmark of the profiler: its logs and its rows."""

import json
import subprocess
import sys

import pytest
from documents import ROOT

from am.profiler.event_format import EventReader, Role
from am.profiler.parser import LogReader
from am.profiler.records import StepLoss
from themis_lab.bench.profiler_logs import EVERY_LINES, SOURCES, Kind, write
from themis_lab.bench.profiler_output import table
from themis_lab.bench.profiler_run import ProfilerBenchPlan, run_plan

SIZE = 200_000


def steps(kind, data):
    """Read in parts small enough that nothing is skipped."""
    if SOURCES[kind].events:
        reader, parts = EventReader(Role.TRAINING), [data[at : at + 9000] for at in range(0, len(data), 9000)]
    else:
        lines = data.split(b"\n")
        reader, parts = LogReader(), [b"\n".join(lines[at : at + 100]) + b"\n" for at in range(0, len(lines), 100)]
    return sum(isinstance(record, StepLoss) for part in parts for record in reader.read(part))


@pytest.mark.parametrize("kind", [kind for kind in Kind if kind is not Kind.NOISE])
def test_logs_have_named_content(kind):
    data = write(kind, 1, 2_000_000 if kind is Kind.EVENTS_AMONG else SIZE)
    assert data == write(kind, 1, len(data) - 1)
    found = steps(kind, data)
    if kind in (Kind.EVENTS, Kind.CNN, Kind.ESTIMATOR, Kind.LINES):
        a_line = {Kind.EVENTS: 1, Kind.CNN: 1, Kind.ESTIMATOR: 2, Kind.LINES: 2}[kind]
        lines = data.count(b"loss") if kind is Kind.EVENTS else data.count(b"\n")
        assert lines - 1 <= found * a_line <= lines
    elif SOURCES[kind].among:
        assert 0 < found <= data.count(b"\n") / EVERY_LINES
    else:
        assert found > 0


def test_noise_has_no_records():
    assert LogReader().read(write(Kind.NOISE, 1, SIZE)) == []
    assert write(Kind.NOISE, 1, SIZE) != write(Kind.NOISE, 2, SIZE)


def test_rows_add_up():
    kinds = (Kind.NOISE, Kind.MIXED, Kind.EVENTS)
    rows = list(run_plan(ProfilerBenchPlan(kinds=kinds, size_mb=1, repeats=1)))
    assert [row.kind for row in rows] == list(kinds)
    for row in rows:
        assert row.mb >= 1.0
        assert row.share_of_limit == pytest.approx(row.mb_per_s / row.limit_mb_per_s)
        assert (row.us_a_record is None) == (row.records == 0) == (row.kind is Kind.NOISE)
    assert len(table(rows).splitlines()) == 4


def bench(*options):
    command = [sys.executable, "-m", "themis_cli.main", "bench", "profiler", *options]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)


def test_command_prints_document_and_progress_on_stderr():
    ended = bench("--kinds", "keras-bars,noise", "--size-mb", "1", "--repeats", "1", "--json")
    assert ended.returncode == 0, ended.stderr
    assert [row["kind"] for row in json.loads(ended.stdout)["rows"]] == ["keras-bars", "noise"]
    assert "keras-bars: " in ended.stderr


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--size-mb", "0"], "--size-mb must be 1 or more: 0"),
        (["--repeats", "-1"], "--repeats must be 1 or more: -1"),
        (["--kinds", "noize"], "unknown kind of log: 'noize'; did you mean 'noise'?"),
    ],
)
def test_bad_options_exit_2(options, expected):
    ended = bench(*options)
    assert (ended.returncode, ended.stderr.strip()) == (2, f"themis: {expected}")
