"""A market document becomes a market; every mistake names its field."""

import copy

import pytest

from rm_plugin.arbiter.auction import run_auction
from rm_plugin.arbiter.market_file import parse_market
from rm_plugin.solvers.highs import HighsSolver
from themis.bids import Gang
from themis.choices import EmptyBundle
from themis.cluster import Level
from themis.errors import InputError

DOCUMENT = {
    "machines": [{"id": "m0", "rack": "r0", "gpus": 4, "slots": [2, 2]}],
    "free": {"m0": 4},
    "empty_bundle": "finite",
    "bidders": [
        {
            "app": "a",
            "empty_value": 0.25,
            "rows": [
                {"gangs": [{"gpus": 2, "within": "machine", "count": 1}], "pinned": {"m0": 1}, "value": 0.5},
                {"gpus": {"m0": 3}, "value": 0.55},
            ],
        }
    ],
}


def changed(*path, to):
    document = copy.deepcopy(DOCUMENT)
    at = document
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = to
    return document


def test_a_document_becomes_a_market():
    market = parse_market(DOCUMENT)
    assert market.machines[0].free_slots == (2, 2)
    assert market.empty_bundle is EmptyBundle.FINITE
    gangs, explicit = market.bids[0].rows
    assert (gangs.gangs, gangs.pinned.by_machine()) == ((Gang(2, Level.MACHINE, 1),), {"m0": 1})
    assert (explicit.gangs, explicit.pinned.by_machine(), explicit.value) == ((), {"m0": 3}, 0.55)
    assert run_auction(market, HighsSolver(), 10.0).wins["a"].row == 1


@pytest.mark.parametrize(
    ("free", "slots"),
    [({"m0": 3}, (2, 1)), ({"m0": [1, 2]}, (1, 2)), ({}, (0, 0))],
)
def test_free_gpus_by_number_by_slot_or_none(free, slots):
    assert parse_market(changed("free", to=free)).machines[0].free_slots == slots


def test_without_free_all_gpus_are_free():
    document = copy.deepcopy(DOCUMENT)
    del document["free"], document["machines"][0]["slots"], document["empty_bundle"]
    assert parse_market(document).machines[0].free_slots == (4,)


ROW = ("bidders", 0, "rows", 0)
MISTAKES = {
    "unknown key": (changed("empty_bundel", to="finite"), "empty_bundel.*did you mean 'empty_bundle'"),
    "unknown row key": (changed(*ROW, "pined", to={}), r"bidders\[0\]\.rows\[0\].*did you mean 'pinned'"),
    "no list": (changed("machines", to={}), r"market\.machines must be a list"),
    "no object": ([], "market must be an object"),
    "missing": (changed("bidders", 0, to={"app": "a", "rows": []}), r"market\.bidders\[0\] lacks.*empty_value"),
    "value of no worth": (changed(*ROW, "value", to=0), r"bidders\[0\]\.rows\[0\]: the value"),
    "value a truth": (changed(*ROW, "value", to=True), r"rows\[0\]\.value must be a number"),
    "infinite value": (changed(*ROW, "value", to=float("inf")), r"rows\[0\]: the value"),
    "unknown level": (changed(*ROW, "gangs", 0, "within", to="machin"), "within.*did you mean 'machine'"),
    "no GPUs": (changed(*ROW, "gangs", 0, "gpus", to=0), r"gangs\[0\]\.gpus must be a whole number of 1"),
    "unit": (changed(*ROW, "gangs", 0, "unit_gpus", to=3), r"gangs\[0\]: unit_gpus must divide"),
    "both": (changed(*ROW, "gpus", to={"m0": 1}), r"rows\[0\] has both gpus and gangs"),
    "empty row": (changed(*ROW, to={"value": 0.5}), r"rows\[0\]: a bid row needs gangs"),
    "unknown machine": (
        changed(*ROW, "pinned", to={"m1": 1}),
        r"machine in market\.bidders\[0\]\.rows\[0\]\.pinned: 'm1'; known: m0",
    ),
    "unknown free machine": (changed("free", to={"x": 1}), "machine in market.free.*'x'"),
    "negative": (changed(*ROW, "pinned", to={"m0": -1}), r"pinned\.m0 must be a whole number"),
    "too many free": (changed("free", to={"m0": 5}), r"market\.free\.m0 is more than the machine has"),
    "too many in a slot": (changed("free", to={"m0": [3, 0]}), r"market\.free\.m0 is more than the machine has"),
    "too many slots": (changed("free", to={"m0": [1, 1, 1]}), r"market\.free\.m0 is more than the machine has"),
    "slots": (changed("machines", 0, "slots", to=[2, 1]), r"machines\[0\]\.slots must add up"),
    "twins": (changed("machines", to=DOCUMENT["machines"] * 2), "two machines share one id.*'m0'"),
    "twin bidders": (changed("bidders", to=DOCUMENT["bidders"] * 2), r"bidders\[1\]\.app is there twice"),
    "empty bundle": (changed("empty_bundle", to="finit"), "did you mean 'finite'"),
    "empty value": (changed("bidders", 0, "empty_value", to=0), r"bidders\[0\]\.empty_value must be more than 0"),
    "negative empty": (changed("bidders", 0, "empty_value", to=-1), r"bidders\[0\]: the empty bundle"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_names_its_field(mistake):
    document, message = MISTAKES[mistake]
    with pytest.raises(InputError, match=message):
        parse_market(document)


def test_an_empty_value_of_0_is_fine_in_a_lexicographic_market():
    document = changed("bidders", 0, "empty_value", to=0)
    document["empty_bundle"] = "lexicographic"
    assert parse_market(document).bids[0].empty_value == 0.0
