"""A market document becomes a market; every mistake names its field."""

import copy
import json

import pytest

from rm_plugin.arbiter.auction import run_auction
from rm_plugin.arbiter.market_document import market_document
from rm_plugin.arbiter.market_file import MAX_SLOTS, parse_market, read_market
from rm_plugin.solvers.highs import HighsSolver
from themis.bids import FreeMachine, GangRequest, Market
from themis.choices import EmptyBundle
from themis.cluster import Level
from themis.errors import InputError
from themis.json_fields import MAX_WHOLE

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
    assert (gangs.gangs, gangs.pinned.by_machine()) == ((GangRequest(2, Level.MACHINE, 1),), {"m0": 1})
    assert (explicit.gangs, explicit.pinned.by_machine(), explicit.value) == ((), {"m0": 3}, 0.55)
    assert run_auction(market, HighsSolver(), 10.0).wins["a"].row == 1


def test_gpus_of_an_explicit_row_that_belong_together_are_won_as_one_gang():
    """Payments keep or take such a gang as one; without `pinned_gangs` they would split it by machine."""
    document = {
        "machines": [{"id": "m0", "gpus": 4}, {"id": "m1", "gpus": 4}],
        "bidders": [{"app": "a", "empty_value": 0.5, "rows": [{"gpus": {"m0": 4, "m1": 4}, "value": 1.0}]}],
    }
    apart = parse_market(document)
    document["bidders"][0]["rows"][0]["pinned_gangs"] = [{"m0": 4, "m1": 4}]
    together = parse_market(document)
    parts = {
        name: [gang.gpus.by_machine() for gang in run_auction(market, HighsSolver(), 10.0).wins["a"].gangs]
        for name, market in {"apart": apart, "together": together}.items()
    }
    assert parts == {"apart": [{"m0": 4}, {"m1": 4}], "together": [{"m0": 4, "m1": 4}]}
    assert parse_market(market_document(together)) == together


def test_a_machine_without_slots_is_written_as_one_without_a_free_gpu():
    """A market at hand may hold one; a document that lists no slots is refused."""
    empty = Market(machines=(FreeMachine(machine_id="m0", rack_id="r0", free_slots=()),), bids=())
    assert parse_market(market_document(empty)).machines[0].free_slots == (0,)


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
    "value of no worth": (changed(*ROW, "value", to=0), r"rows\[0\]\.value must be a finite number above 0: 0"),
    "value a truth": (changed(*ROW, "value", to=True), r"rows\[0\]\.value must be a number"),
    "infinite value": (changed(*ROW, "value", to=float("inf")), r"rows\[0\]\.value must be a finite number.*: inf"),
    "no number at all": (changed(*ROW, "value", to=float("nan")), r"rows\[0\]\.value must be a finite number.*: nan"),
    "huge value": (changed(*ROW, "value", to=10**400), r"rows\[0\]\.value must be a finite number"),
    "huge count": (
        changed(*ROW, "gangs", 0, "count", to=MAX_WHOLE + 1),
        r"gangs\[0\]\.count must be .* to 100000: 100001",
    ),
    "a bid for a number": (changed(*ROW, "value", to=DOCUMENT), r"rows\[0\]\.value must be a number: .{1,400}$"),
    "half a character": (changed("bidders", 0, "app", to="a\ud800"), r"bidders\[0\]\.app holds half a character"),
    "unknown level": (changed(*ROW, "gangs", 0, "within", to="machin"), "within.*did you mean 'machine'"),
    "no GPUs": (changed(*ROW, "gangs", 0, "gpus", to=0), r"gangs\[0\]\.gpus must be a whole number from 1"),
    "unit": (changed(*ROW, "gangs", 0, "unit_gpus", to=3), r"gangs\[0\]: unit_gpus must divide"),
    "both": (changed(*ROW, "gpus", to={"m0": 1}), r"rows\[0\] has both gpus and gangs"),
    "explicit and pinned": (
        changed(*ROW, to={"gpus": {"m0": 1}, "pinned": {"m0": 1}, "value": 1}),
        r"rows\[0\] has both gpus and gangs or pinned",
    ),
    "explicit gangs": (
        changed(*ROW, to={"gpus": {"m0": 2}, "pinned_gangs": [{"m0": 1}], "value": 1}),
        r"rows\[0\]: the pinned gangs must add up",
    ),
    "empty row": (changed(*ROW, to={"value": 0.5}), r"rows\[0\]: a bid row needs gangs"),
    "unknown machine": (
        changed(*ROW, "pinned", to={"m1": 1}),
        r"machine in market\.bidders\[0\]\.rows\[0\]\.pinned: 'm1'; known: m0",
    ),
    "unknown free machine": (changed("free", to={"x": 1}), "machine in market.free.*'x'"),
    "negative": (changed(*ROW, "pinned", to={"m0": -1}), r"pinned\.m0 must be a whole number"),
    "nothing pinned": (changed(*ROW, "pinned", to={"m0": 0}), r"pinned\.m0 must be a whole number from 1 to 100000: 0"),
    "nothing explicit": (
        changed("bidders", 0, "rows", 1, "gpus", to={"m0": 0}),
        r"rows\[1\]\.gpus\.m0 must be a whole number from 1",
    ),
    "nothing pinned together": (
        changed(*ROW, "pinned_gangs", to=[{"m0": 0}]),
        r"pinned_gangs\[0\]\.m0 must be a whole number from 1",
    ),
    "too many free": (changed("free", to={"m0": 5}), r"market\.free\.m0 is more than the machine has"),
    "too many in a slot": (changed("free", to={"m0": [3, 0]}), r"market\.free\.m0 is more than the machine has"),
    "too many slots": (changed("free", to={"m0": [1, 1, 1]}), r"market\.free\.m0 must have one number a slot"),
    "too few slots": (changed("free", to={"m0": [1]}), r"market\.free\.m0 must have one number a slot"),
    "too many GPUs": (
        changed("machines", to=[{"id": f"m{index}", "gpus": MAX_WHOLE} for index in range(11)]),
        r"market\.machines have more than \d+ GPUs together",
    ),
    "one machine far larger than many": (
        changed("machines", to=[{"id": f"m{index}", "gpus": MAX_WHOLE if index == 0 else 1} for index in range(11)]),
        r"market\.machines are too uneven: 11 of them, times 100000 GPUs",
    ),
    "no slots": (
        changed("machines", 0, to={"id": "m0", "slots": []}),
        r"machines\[0\]\.slots must be 1 to 128 slots: 0",
    ),
    "more slots than any machine has": (
        changed("machines", 0, to={"id": "m0", "slots": [1] * (MAX_SLOTS + 1)}),
        r"machines\[0\]\.slots must be 1 to 128 slots: 129",
    ),
    "slots": (changed("machines", 0, "slots", to=[2, 1]), r"machines\[0\]\.slots must add up"),
    "pinned gangs": (changed(*ROW, "pinned_gangs", to=[{"m0": 2}]), r"rows\[0\]: the pinned gangs must add up"),
    "empty pinned gang": (
        changed(*ROW, to={"value": 0.5, "pinned": {"m0": 1}, "pinned_gangs": [{"m0": 1}, {}]}),
        r"rows\[0\]: a pinned gang needs a GPU",
    ),
    "twins": (changed("machines", to=DOCUMENT["machines"] * 2), r"machines\[1\]\.id is there twice: 'm0'"),
    "twin bidders": (changed("bidders", to=DOCUMENT["bidders"] * 2), r"bidders\[1\]\.app is there twice"),
    "empty bundle": (changed("empty_bundle", to="finit"), "did you mean 'finite'"),
    "empty value": (changed("bidders", 0, "empty_value", to=0), r"bidders\[0\]\.empty_value must be more than 0"),
    "negative empty": (
        changed("bidders", 0, "empty_value", to=-1),
        r"bidders\[0\]\.empty_value must be a finite number of 0",
    ),
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


def test_a_file_is_read():
    assert read_market(json.dumps(DOCUMENT).encode(), "m.json") == parse_market(DOCUMENT)


def text_with(*path, to):
    """The document as text, with this text in place of one value."""
    return json.dumps(changed(*path, to="HERE")).replace('"HERE"', to)


FILES = {
    "nothing": ("", r"m\.json is not JSON, line 1, column 1"),
    "half": ('{\n"machines": [', r"m\.json is not JSON, line 2"),
    "twice": (json.dumps(DOCUMENT)[:-1] + ', "free": {}}', r"^market has a key twice: 'free'; keep one"),
    "twice in a row": (
        text_with(*ROW, to='{"value": 1, "gpus": {"m0": 1}, "gpus": {}}'),
        r"^market\.bidders\[0\]\.rows\[0\] has a key twice: 'gpus'",
    ),
    "twice in what is lost": (
        text_with("free", to='{"m0": {"a": 1, "a": 2}, "m0": 4}'),
        r"^market\.free has a key twice: 'm0'",
    ),
    "twice under a long key": (
        text_with("free", to='{"' + "m" * 10**6 + '": {"a": 1, "a": 2}}'),
        r"^market\.free\.m{40}\.\.\.m{40} has a key twice: 'a'",
    ),
    "deep": ("[" * 100_000 + "]" * 100_000, r"m\.json is nested too deeply"),
    "deep in a field": (text_with(*ROW, "value", to="[" * 500 + "]" * 500), r"rows\[0\]\.value must be a number"),
    "NaN": (text_with(*ROW, "value", to="NaN"), r"rows\[0\]\.value must be a finite number.*: nan"),
    "Infinity": (
        text_with("bidders", 0, "empty_value", to="-Infinity"),
        r"empty_value must be a finite number.*: -inf",
    ),
    "too large a float": (text_with(*ROW, "value", to="1e999"), r"rows\[0\]\.value must be a finite number.*: inf"),
    "too long a number": (text_with(*ROW, "value", to="9" * 5000), r"rows\[0\]\.value must be a finite number.*: inf"),
    "too many GPUs": (text_with("machines", 0, "gpus", to="9" * 5000), r"machines\[0\]\.gpus must be a whole number"),
    "NaN GPUs": (text_with("free", "m0", to="NaN"), r"free\.m0 must be a whole number"),
}


@pytest.mark.parametrize("mistake", FILES)
def test_a_file_that_is_no_market_is_refused(mistake):
    content, message = FILES[mistake]
    with pytest.raises(InputError, match=message):
        read_market(content.encode(), "m.json")


def test_a_file_that_is_not_utf8_is_refused():
    with pytest.raises(InputError, match=r"m\.json is not UTF-8 text: 'byte 1'"):
        read_market(b'"\xff"', "m.json")


def test_a_whole_number_as_a_value_is_read_exactly():
    content = text_with(*ROW, "value", to="1" + "0" * 300).encode()
    assert read_market(content, "m.json").bids[0].rows[0].value == 1e300
