"""The check of wins: every way to break a row is found."""

import pytest
from msgspec.structs import replace

from rm_plugin.solvers.port import Win
from themis.bids import Bid, BidRow, FreeMachine, GangRequest, Market, PlacedGang
from themis.cluster import Allocation, Level
from themis_lab.audit.feasibility import infeasible

MACHINES = (
    FreeMachine(machine_id="m0", rack_id="r0", free_slots=(2, 2)),
    FreeMachine(machine_id="m1", rack_id="r0", free_slots=(2,)),
    FreeMachine(machine_id="m2", rack_id="r1", free_slots=(3,)),
)
ROW = BidRow(
    value=1.0,
    gangs=(GangRequest(2, Level.SLOT), GangRequest(4, Level.RACK, unit_gpus=2)),
    pinned=Allocation.of({"m2": 2}),
)
MARKET = Market(machines=MACHINES, bids=(Bid(app_id="a", round_id=0, empty_value=0.1, rows=(ROW,)),))
SLOT = PlacedGang(gpus=Allocation.of({"m0": 2}), level=Level.SLOT, slot=1)
SPREAD = PlacedGang(gpus=Allocation.of({"m0": 2, "m1": 2}), level=Level.RACK)
PIN = PlacedGang(gpus=Allocation.of({"m2": 2}), level=Level.MACHINE, pinned=True)


def problems(*gangs, row=0):
    return infeasible(MARKET, {"a": Win(row=row, gangs=gangs)})


def test_win_matching_its_row_is_feasible():
    assert problems(SLOT, SPREAD, PIN) == []
    assert infeasible(MARKET, {}) == []


@pytest.mark.parametrize(
    ("gangs", "expected"),
    [
        ((SLOT, SPREAD), "pinned GPUs"),
        ((SLOT, PIN), "are not those that were placed"),
        ((replace(SLOT, level=Level.MACHINE, slot=None), SPREAD, PIN), "are not those that were placed"),
        ((replace(SLOT, level=Level.MACHINE), SPREAD, PIN), "is said to span machine"),
        ((SLOT, replace(SPREAD, gpus=Allocation.of({"m0": 2, "m2": 1})), PIN), "is said to span rack"),
        ((SLOT, replace(SPREAD, gpus=Allocation.of({"m0": 1, "m1": 1})), PIN), "are not those that were placed"),
        ((SLOT, SPREAD, PIN, PIN), "4 GPUs of m2 are given, 3 are free"),
        (
            (replace(SLOT, gpus=Allocation.of({"m1": 2}), slot=1), replace(SPREAD, gpus=Allocation.of({"m0": 4})), PIN),
            "slot 1 of m1",
        ),
        ((replace(SLOT, gpus=Allocation.of({"m9": 2})), SPREAD, PIN), "2 GPUs of m9 are given, 0 are free"),
    ],
)
def test_win_differing_from_its_row_is_reported(gangs, expected):
    found = problems(*gangs)
    assert any(expected in problem for problem in found), found


def test_a_task_that_spans_machines_is_infeasible():
    row = BidRow(value=1.0, gangs=(GangRequest(2, Level.RACK, unit_gpus=2),))
    market = replace(MARKET, bids=(replace(MARKET.bids[0], rows=(row,)),))
    split = PlacedGang(gpus=Allocation.of({"m0": 1, "m1": 1}), level=Level.RACK)
    assert infeasible(market, {"a": Win(row=0, gangs=(split,))}) == [
        "a: the gangs of row 0 are not those that were placed"
    ]


def test_unknown_bidders_and_rows_are_reported():
    assert "did not bid" in problems(row=1)[0]
    assert "did not bid" in infeasible(MARKET, {"b": Win(row=0, gangs=())})[0]


def test_interchangeable_gangs_are_matched_to_requests():
    row = BidRow(
        value=1.0, gangs=(GangRequest(2, Level.CLUSTER), GangRequest(2, Level.SLOT), GangRequest(2, Level.MACHINE))
    )
    market = Market(machines=MACHINES, bids=(Bid(app_id="a", round_id=0, empty_value=0.1, rows=(row,)),))
    gangs = (
        SLOT,
        PlacedGang(gpus=Allocation.of({"m1": 2}), level=Level.MACHINE),
        PlacedGang(gpus=Allocation.of({"m0": 1, "m2": 1}), level=Level.CLUSTER),
    )
    assert infeasible(market, {"a": Win(row=0, gangs=gangs)}) == []
    assert infeasible(market, {"a": Win(row=0, gangs=(*gangs[1:], gangs[2]))})
