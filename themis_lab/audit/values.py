"""What an audit finds: samples of what is measured, and findings, each with its market."""

from __future__ import annotations

from dataclasses import dataclass

from themis.bids import Market


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One measured number: what was measured, how much, and in words of whom or by which lie."""

    measure: str
    value: float
    what: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A property that does not hold: which, in which market of which family, what is wrong, and the market."""

    property_name: str
    family: str
    number: int
    what: str
    market: Market
