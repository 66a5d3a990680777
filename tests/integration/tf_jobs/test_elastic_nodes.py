"""Jobs of 1 to 8 tasks, resized and moved between two nodes, learn what they would have learnt left alone."""

import asyncio
import csv
import importlib.util
import sys
from itertools import groupby, pairwise

import pytest
from documents import ROOT

SPEC = importlib.util.spec_from_file_location("node_recorder", ROOT / "tools" / "record_elastic_nodes.py")
recorder = importlib.util.module_from_spec(SPEC)
sys.modules[SPEC.name] = recorder
SPEC.loader.exec_module(recorder)

real = pytest.mark.skipif(importlib.util.find_spec("tensorflow") is None, reason="real programs need the extra 'tf'")
FLOAT_NOISE = 2e-5
"""Relative, of nets without a branch that a last bit can turn."""
FEW = ({"node0": 1}, {"node0": 2, "node1": 1}, {"node1": 1})
"""Two resizes and two moves: what each change shows of the programs that start slowly."""
MORE = ({"node0": 1, "node1": 1}, {"node1": 2}, {"node0": 4, "node1": 4}, {"node1": 1})
"""To as many tasks as there are parts, and a move at equal size."""
CASES = [
    pytest.param(program, placements, id=f"{program}-{len(placements) - 1}", marks=marks)
    for program, some in (("digits_cnn", MORE), ("text_lstm", FEW), ("text_transformer", FEW))
    for placements, marks in ((some, ()), (recorder.PLACEMENTS, pytest.mark.nightly))
]


def changes(placements):
    """How many changes of size there are, and how many moves at equal size."""
    sizes = [(sum(one.values()), sum(two.values())) for one, two in pairwise(placements)]
    return sum(one != two for one, two in sizes), sum(one == two for one, two in sizes)


def read(nodes):
    return {node: int(tasks) for node, tasks in (part.split(":") for part in nodes.split(","))}


@real
@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize(("program", "placements"), CASES)
def test_resizes_over_two_nodes_change_no_bit(program, placements, tmp_path):
    """`digits_cnn` is the one that parts, in iteration 170, with one share a task (docs/explanation/elastic.md)."""
    resized, alone = asyncio.run(recorder.both(tmp_path, recorder.program_command(program), placements))
    assert [point.iteration for point in resized] == list(range(1, len(resized) + 1)), "an iteration lost or repeated"
    assert len(resized) >= len(placements) * recorder.MIN_ITERATIONS
    seen = [read(nodes) for nodes, _ in groupby(point.nodes for point in resized)]
    assert seen == [dict(placement) for placement in placements]
    assert [point.loss for point in resized] == [point.loss for point in alone]
    assert recorder.state(tmp_path / "resized") == recorder.state(tmp_path / "alone"), "weights and optimizer's state"
    assert alone[-1].loss < 0.9 * alone[0].loss, "a curve to compare"


def test_every_program_is_resized():
    assert {case.values[0] for case in CASES} == set(recorder.PROGRAMS)


def test_recorded_placements_have_ten_resizes_and_one_move():
    assert changes(recorder.PLACEMENTS) == (10, 1)
    assert {sum(placement.values()) for placement in recorder.PLACEMENTS} >= {1, 2, 3, 4, 5, 8}
    assert set().union(*recorder.PLACEMENTS) == {"node0", "node1"}


@pytest.mark.parametrize("program", recorder.PROGRAMS)
def test_the_recorded_curves_are_equal_with_parts_in_order_and_near_with_shares(program):
    with recorder.CSV.open(newline="") as stream:
        rows = [row for row in csv.DictReader(stream) if row["program"] == program]
    for sums in recorder.SUMS:
        of = [row for row in rows if row["sums"] == sums]
        assert changes([read(nodes) for nodes, _ in groupby(row["nodes"] for row in of)]) == (10, 1)
        resized, alone = ([float(row[name]) for row in of] for name in ("resized_loss", "alone_loss"))
        if sums == "ordered":
            assert resized == alone
        else:
            smooth = 169 if program == "digits_cnn" else len(of)
            assert resized[:smooth] == pytest.approx(alone[:smooth], rel=FLOAT_NOISE)
