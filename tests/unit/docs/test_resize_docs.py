"""The part of benchmarks.md on resizing holds every option, phase and key, and events.md the events that it reads."""

import argparse

from documents import code, table_rows, text_of

from themis_cli import bench_resize_command
from themis_lab.bench.resize_output import REACH_RATIO, document
from themis_lab.bench.resize_phases import FREE_PHASES, RESERVE_STEPS, START_STEPS, STEP_PHASES
from themis_lab.bench.resize_run import ResizeBenchPlan
from themis_lab.bench.resize_world import POLICY

PAGE = "docs/reference/benchmarks.md"


def test_options():
    parser = argparse.ArgumentParser()
    group = parser.add_subparsers()
    bench_resize_command.add_to(group)
    actions = group.choices["resize"]._actions
    known = {action.option_strings[-1]: action.default for action in actions if "--help" not in action.option_strings}
    written = {code(row[0])[0]: row[1].strip("`") for row in table_rows(PAGE, "option of `bench resize`")}
    assert written == {name: "off" if default is False else str(default) for name, default in known.items()}


def test_phases():
    written = [name for row in table_rows(PAGE, "phase") for name in code(row[0])]
    assert written == list(dict.fromkeys((*FREE_PHASES, *STEP_PHASES)))


def test_keys():
    written = [name for row in table_rows(PAGE, "key of a resize's document") for name in code(row[0])]
    assert sorted(written) == sorted(document(ResizeBenchPlan(), []))


def test_the_aim_and_the_policy():
    text = " ".join(text_of(PAGE).split())
    assert f"within {REACH_RATIO:g} times the bare processes" in text
    assert f"The policy is `{POLICY}`" in text


def test_event_rows_list_the_start_steps():
    rows = {code(row[0])[0]: code(row[3]) for row in table_rows("docs/reference/events.md", "kind")}
    assert {"seconds", *RESERVE_STEPS} <= set(rows["tasks_started"])
    assert {"seconds", *START_STEPS} <= set(rows["first_step"])
