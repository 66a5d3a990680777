"""docs/explanation/profiler.md and the profiler's part of docs/reference/benchmarks.md hold what the code does."""

import argparse
import re

import pytest
from documents import block, code, table_rows, text_of
from msgspec.structs import fields

from am.profiler.event_folder import MAX_DEPTH, MAX_ENTRIES
from am.profiler.event_format import EVALUATION_FOLDERS, HELD_OUT_TAGS, LOSS_TAGS
from am.profiler.health import MAX_LOOK_GAP_S, MIN_STALL_S, NON_FINITE_LOSSES, STALL_FIRST_S, STALL_USUAL
from am.profiler.iteration_time import WINDOW
from am.profiler.job_reader import MAX_SEARCH_S, SEARCH_EVERY_S
from am.profiler.parser import FORMATS, SILENCE_RECORDS, LogReader
from am.profiler.records import Metric, StepLoss
from themis.config.group_file import GroupFile, build_app
from themis.config.loader import fit, parse_yaml
from themis_cli.bench_profiler_command import add_to
from themis_lab.bench.profiler_logs import EVERY_LINES, Kind
from themis_lab.bench.profiler_run import Row

PAGE, BENCH = "docs/explanation/profiler.md", "docs/reference/benchmarks.md"
MEASURED = "docs/explanation/performance.md"


def text():
    return " ".join(text_of(PAGE).split())


def test_every_format_has_its_row_and_event_files_have_one():
    # Keras has two, and other programs have one.
    assert len(table_rows(PAGE, "format")) == len(FORMATS) + 3


def test_the_lines_shown_are_read():
    shown = {line.replace("<TAB>", "\t") for row in table_rows(PAGE, "format") for line in code(row[1])}
    reported = [line for line in shown if any(isinstance(each, StepLoss) for each in LogReader().read(whole(line)))]
    assert len(reported) == 5


def test_every_line_of_your_own_program_is_read():
    lines = block("docs/how-to/own-program.md", "lines that are read").body.splitlines()
    *single, head, row = lines
    assert all(LogReader().read(f"{line}\n".encode()) for line in single)
    assert LogReader().read(f"{head}\n{row}\n".encode())


DECLARED = table_rows("docs/how-to/own-program.md", "a line of your log")


@pytest.mark.parametrize(("line", "metric"), DECLARED, ids=[code(row[1])[0] for row in DECLARED])
def test_declared_metric_of_a_known_log_is_read(line, metric):
    group = {"name": "a", "command": "x", "job": {"iterations": 9}, **parse_yaml(code(metric)[0], "metric")}
    reader = LogReader(metric=build_app(fit(GroupFile, group, "group"), "group").metric)
    assert any(isinstance(each, Metric) for each in reader.read(f"{code(line)[0]}\n".encode()))


@pytest.mark.parametrize("mark", ["group: epochs", "group: metric"])
def test_group_files_of_your_own_program_are_valid(mark):
    file = fit(GroupFile, parse_yaml(block("docs/how-to/own-program.md", mark).body, mark), mark)
    assert len(build_app(file, mark).jobs) > 1


def whole(line):
    return b"Epoch 3/10\n" + line.encode() + b"\n"


def test_numbers_and_names_in_the_page_match_the_code():
    known = text()
    assert f"five levels, {MAX_ENTRIES:,} entries, every {SEARCH_EVERY_S:g} s for at most {MAX_SEARCH_S:g} s" in known
    assert MAX_DEPTH == 5
    assert all(f"`{name}`" in known for name in (*LOSS_TAGS, *HELD_OUT_TAGS, *EVALUATION_FOLDERS))
    assert f"silent for {SILENCE_RECORDS} records" in known
    assert f"newest {WINDOW} intervals" in known
    assert f"longer than {MIN_STALL_S:g} s, {STALL_USUAL:g} usual waits" in known
    assert f"at most {MAX_LOOK_GAP_S:g} s a look" in known
    assert (NON_FINITE_LOSSES, STALL_FIRST_S) == (2, 1800)


def test_the_page_lists_all_benchmark_options():
    commands = argparse.ArgumentParser().add_subparsers()
    add_to(commands)
    known = {each.option_strings[-1]: each.default for each in commands.choices["profiler"]._actions[1:]}
    written = {code(row[0])[0]: row[1].strip("`") for row in table_rows(BENCH, "option of `bench profiler`")}
    assert written == {name: "off" if default is False else str(default) for name, default in known.items()}
    keys = {name for row in table_rows(BENCH, "key of a profiler's row") for name in code(row[0])}
    assert keys == {field.name for field in fields(Row)}
    assert [code(row[0])[0] for row in table_rows(MEASURED, "log")] == list(Kind)
    assert re.search(rf"one line in {EVERY_LINES} is", text_of(MEASURED))
