"""The pages on checkpoints and on their benchmark hold every option, key, scheme and number."""

import argparse
from itertools import islice

import pytest
from documents import code, table_rows, text_of
from msgspec.structs import fields

from am import journal_hdfs
from am.checkpoints.hdfs import LEFTOVER_AGE_S
from am.checkpoints.hdfs_upload import PART_BYTES
from themis.checkpoint_uri import SCHEMES
from themis.hadoop.webhdfs_retry import RetryRule
from themis_cli import bench_checkpoint_command, checkpoints_command
from themis_lab.bench.checkpoint_output import document
from themis_lab.bench.checkpoint_run import CheckpointBenchPlan, Row

PAGE = "docs/explanation/checkpoints.md"
BENCH = "docs/reference/benchmarks.md"


def options(add_to, *names):
    parser = argparse.ArgumentParser()
    add_to(parser.add_subparsers())
    for name in names:
        (group,) = parser._subparsers._group_actions
        parser = group.choices[name]
    flags = {action.option_strings[-1]: action.default for action in parser._actions if action.option_strings}
    del flags["--help"]
    return flags


@pytest.mark.parametrize("command", ["list", "copy"])
def test_options_of_the_commands(command):
    known = options(checkpoints_command.add_to, "checkpoints", command)
    written = {code(row[0])[0]: row[1].strip("`") for row in table_rows(PAGE, f"option of `checkpoints {command}`")}
    assert written == {
        name: "all" if default is None else "off" if default is False else str(default)
        for name, default in known.items()
    }


def test_options_of_the_benchmark():
    known = options(bench_checkpoint_command.add_to, "checkpoint")
    written = {code(r[0])[0]: r[1].strip("`") for r in table_rows(BENCH, "option of `bench checkpoint`")}
    assert written == {
        name: "none" if default is None else "off" if default is False else str(default)
        for name, default in known.items()
    }


def test_keys_of_the_benchmark():
    written = [name for row in table_rows(BENCH, "key of a checkpoint's row") for name in code(row[0])]
    assert sorted(written) == sorted(field.name for field in fields(Row))
    assert all(f"`{key}`" in text_of(BENCH) for key in document(CheckpointBenchPlan(uri="hdfs:///a"), []))


def test_schemes():
    shown = " ".join(row[0] for row in table_rows(PAGE, "URI"))
    assert all(f"`{scheme}://" in shown for scheme in SCHEMES)


def test_numbers():
    text = " ".join(text_of(PAGE).split())
    waits = list(islice(RetryRule().waits_s(), 6))
    assert f"after {', '.join(f'{wait:g}' for wait in waits[:5])} s and then every {waits[5]:g} s" in text
    assert RetryRule().deadline_s == 120 and "until two minutes have passed" in text
    assert f"more than {PART_BYTES >> 20} MB go in parts" in text
    assert f"has changed for {LEFTOVER_AGE_S / 60:g} minutes" in text
    assert f"waits up to {journal_hdfs.CLOSE_WITHIN_S:g} s" in text
    assert f"the last {journal_hdfs.FLUSH_EVERY_S:g} s" in text and journal_hdfs.FLUSH_EVERY_S == 1 / 5
    assert f"written {journal_hdfs.BATCHES_PER_EPOCH} more batches" in text
