"""Shrinking ends at the smallest market that still shows what was planted."""

from rm_plugin.arbiter.market_document import market_document
from rm_plugin.arbiter.market_file import parse_market
from themis.bids import Bid, BidRow, FreeMachine, GangRequest, Market
from themis.cluster import Allocation, Level
from themis_lab.audit.families import family
from themis_lab.audit.shrink import shrink

BIG = Market(
    machines=tuple(FreeMachine(machine_id=f"m{place}", rack_id="r0", free_slots=(4, 4)) for place in range(6)),
    bids=tuple(
        Bid(
            app_id=f"a{place}",
            round_id=0,
            empty_value=0.123456,
            rows=tuple(
                BidRow(
                    value=0.2 + 0.0123456 * (place + index),
                    gangs=(GangRequest(2 + index, Level.SLOT, 3), GangRequest(1, Level.CLUSTER)),
                    pinned=Allocation.of({f"m{index}": 2, f"m{place}": 1}),
                )
                for index in range(4)
            ),
        )
        for place in range(5)
    ),
)


def size(market):
    return (len(market.bids), sum(len(bid.rows) for bid in market.bids), len(market.machines), market.free.gpus)


def test_shrinking_keeps_only_the_planted_row():
    def has_a_gang_of_4(market):
        return any(gang.gpus >= 4 for bid in market.bids for row in bid.rows for gang in row.gangs)

    small = shrink(BIG, has_a_gang_of_4)
    assert size(small) == (1, 1, 0, 0)
    assert small.bids[0].rows[0].gangs == (GangRequest(4, Level.CLUSTER),)
    assert not small.bids[0].rows[0].pinned


def test_shrinking_keeps_two_conflicting_bidders():
    def meet(market):
        pinned = [{machine for row in bid.rows for machine, _ in row.pinned} for bid in market.bids]
        return sum("m3" in machines for machines in pinned) >= 2 and market.free.count("m3") >= 2

    small = shrink(BIG, meet)
    assert size(small) == (2, 2, 1, 2)
    assert small.machines[0].free_slots == (2,)
    assert {row.pinned.by_machine()["m3"] for bid in small.bids for row in bid.rows} == {1}


def test_shrinking_rounds_values():
    small = shrink(BIG, lambda market: any(row.value > 0.25 for bid in market.bids for row in bid.rows))
    assert small.bids[0].empty_value == 0.1
    assert small.bids[0].rows[0].value == 0.3


def test_shrinking_is_deterministic_and_gives_valid_markets():
    for name in ("pinned", "slots", "explicit"):
        market = family(name).market(1, 0)
        one, two = (shrink(market, lambda market: market.free.gpus >= 3 and len(market.bids) > 1) for _ in range(2))
        assert one == two
        assert parse_market(market_document(one)).bids == one.bids


def test_shrinking_stops_after_max_tries():
    tried = []

    def never(market):
        tried.append(market)
        return False

    assert shrink(BIG, never, max_tries=7) == BIG
    assert 0 < len(tried) <= 7


def test_shrinking_stops_when_keep_going_returns_false():
    answers = iter([True, True, False])
    small = shrink(BIG, lambda market: True, keep_going=lambda: next(answers))
    # Two steps: to the last three of five bidders, then to the last two.
    assert [bid.app_id for bid in small.bids] == ["a3", "a4"]
