"""Market files: every market survives the way out and back, and whatever else is in a file is refused by name."""

import copy
import json

from hypothesis import given
from hypothesis import strategies as st
from strategies import GANGS, NAMES

from rm_plugin.arbiter.market_document import market_document
from rm_plugin.arbiter.market_file import parse_market, read_market
from themis.bids import Bid, BidRow, FreeMachine, Market
from themis.choices import EmptyBundle
from themis.cluster import Allocation
from themis.errors import InputError

VALUES = st.floats(min_value=0, exclude_min=True, allow_infinity=False)
SLOTS = st.lists(st.integers(0, 8), min_size=1, max_size=4).map(tuple)


@st.composite
def rows(draw, machine_ids):
    counts = st.dictionaries(st.sampled_from(machine_ids), st.integers(1, 16), min_size=1, max_size=3)
    together = tuple(Allocation.of(part) for part in draw(st.lists(counts, max_size=3)))
    pinned = sum(together, Allocation())
    gangs = tuple(draw(st.lists(GANGS, min_size=0 if pinned else 1, max_size=3)))
    return BidRow(
        value=draw(VALUES), gangs=gangs, pinned=pinned, pinned_gangs=together if pinned and draw(st.booleans()) else ()
    )


@st.composite
def markets(draw):
    machine_ids = draw(st.lists(NAMES, min_size=2, max_size=4, unique=True))
    # A gang may name only a type that a machine has.
    devices = ("gpu", "v100", *draw(st.lists(st.sampled_from(("gpu", "k80")), max_size=2)))[: len(machine_ids)]
    devices += ("gpu",) * (len(machine_ids) - len(devices))
    empty_bundle = draw(st.sampled_from(EmptyBundle))
    empty_values = VALUES if empty_bundle is EmptyBundle.FINITE else st.just(0.0) | VALUES
    return Market(
        machines=tuple(
            FreeMachine(machine_id=machine_id, rack_id=draw(NAMES), free_slots=draw(SLOTS), device=device)
            for machine_id, device in zip(machine_ids, devices, strict=True)
        ),
        bids=tuple(
            Bid(
                app_id=app_id,
                round_id=0,
                empty_value=draw(empty_values),
                rows=tuple(draw(st.lists(rows(machine_ids), max_size=3))),
            )
            for app_id in draw(st.lists(NAMES, max_size=3, unique=True))
        ),
        empty_bundle=empty_bundle,
    )


@given(markets())
def test_a_market_survives_the_way_out_and_back(market):
    assert parse_market(market_document(market)) == market
    assert read_market(json.dumps(market_document(market)).encode(), "market.json") == market


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4) | st.just("a\ud800"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4) | st.just("m"), inner, max_size=3),
    max_leaves=5,
)


@given(markets(), JSON, st.data())
def test_a_market_with_anything_in_any_place_is_read_or_refused(market, anything, data):
    document = copy.deepcopy(market_document(market))
    node, keys = document, []
    while isinstance(node, dict | list) and node and (not keys or data.draw(st.booleans())):
        keys.append((node, data.draw(st.sampled_from(list(node) if isinstance(node, dict) else range(len(node))))))
        node = node[keys[-1][1]]
    holder, key = keys[-1]
    holder[key] = anything
    _read_or_refuse(json.dumps(document).encode())


@given(JSON.map(lambda value: json.dumps(value).encode()) | st.binary(max_size=40))
def test_any_file_is_read_or_refused(content):
    _read_or_refuse(content)


def _read_or_refuse(content: bytes) -> None:
    try:
        read_market(content, "market.json")
    except InputError as error:
        assert "market" in error.what
