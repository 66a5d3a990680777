"""Results of an audit: samples of measures, and violations with their markets."""

from __future__ import annotations

from themis.bids import Market
from themis.values import Value


class Sample(Value, frozen=True, kw_only=True):
    """One measured number: the measure, the value, and a text on the bidder or lie."""

    measure: str
    value: float
    what: str


class Finding(Value, frozen=True, kw_only=True):
    """A violation: the property, family, number of the market, what is wrong, and the market."""

    property_name: str
    family: str
    number: int
    what: str
    market: Market
