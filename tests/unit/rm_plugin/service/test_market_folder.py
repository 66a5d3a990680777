"""Markets of the newest rounds are kept, older ones removed."""

import json

from small_markets import bid, gang, machine, market, row

from rm_plugin.arbiter.market_file import read_market
from rm_plugin.service.market_folder import MarketFolder
from themis.cluster import Level

MARKET = market([machine("m0", 2)], bid("a", 0.1, row(0.5, gang(2, Level.MACHINE))))


def test_newest_markets_are_kept_and_readable(tmp_path):
    markets = MarketFolder(tmp_path / "markets", 2)
    names = [markets.keep(round_id, MARKET) for round_id in (8, 9, 10, 1_000_000)]
    assert sorted(path.name for path in (tmp_path / "markets").iterdir()) == names[-2:]
    assert read_market((tmp_path / "markets" / names[-1]).read_bytes(), names[-1]) == MARKET
    assert json.loads((tmp_path / "markets" / names[-1]).read_text())["empty_bundle"] == "finite"


def test_no_market_is_kept_with_limit_zero(tmp_path):
    assert MarketFolder(tmp_path / "markets", 0).keep(1, MARKET) == ""
    assert list(tmp_path.iterdir()) == []
