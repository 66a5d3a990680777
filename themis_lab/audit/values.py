"""Results of an audit: samples of measures, and violations with their markets."""

from __future__ import annotations

from dataclasses import dataclass

from themis.bids import Market


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One measured number: the measure, the value, and a text on the bidder or lie."""

    measure: str
    value: float
    what: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A violation: the property, family, number of the market, what is wrong, and the market."""

    property_name: str
    family: str
    number: int
    what: str
    market: Market
