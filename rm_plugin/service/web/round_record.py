"""A round, read from its events step by step: the values of docs/reference/events.md with types. Pure."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from rm_plugin.arbiter.round_values import Wait
from rm_plugin.service.store import StoredEvent
from themis.web.formatting import finite

GpusByMachine = Mapping[str, int]


@dataclass(slots=True, kw_only=True)
class RoundRecord:
    """One round; what has not happened yet is empty or None.

    `rho` may hold infinities and NaN. Times are seconds since the epoch, durations seconds. `text` is the round as
    JSON once it has ended and was asked for (`round_text`).
    """

    round_id: int
    started_at_s: float
    reasons: tuple[str, ...] = ()
    gpus_offered: int = 0
    active: tuple[str, ...] = ()
    rho: dict[str, float] = field(default_factory=dict)
    demand_gpus: dict[str, int] = field(default_factory=dict)
    absent: tuple[str, ...] = ()
    reported_at_s: float | None = None
    offered: tuple[str, ...] = ()
    offered_at_s: float | None = None
    bids: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    bids_absent: dict[str, str] = field(default_factory=dict)
    bids_s: float | None = None
    auction: Mapping[str, Any] | None = None
    won: dict[str, GpusByMachine] = field(default_factory=dict)
    leftovers: dict[str, GpusByMachine] = field(default_factory=dict)
    usable_left: int = 0
    refused: dict[str, str] = field(default_factory=dict)
    waits: dict[str, str] = field(default_factory=dict)
    granted: bool = False
    decide_s: float | None = None
    duration_s: float | None = None
    outcome: str = ""
    text: str = field(default="", repr=False)

    def take(self, event: StoredEvent) -> None:
        """Take in one of the round's events."""
        taker = _TAKERS.get(event.kind)
        if taker is not None:
            taker(self, event.detail, event.time_s)

    def worst_first(self) -> list[str]:
        """Apps that reported, largest rho first; one that is not a number comes last, ties stand by id."""
        return sorted(self.rho, key=lambda app: (math.isnan(self.rho[app]), -self.rho[app], app))

    def gpus_of(self, app_id: str) -> int:
        """GPUs that the round gave an app."""
        parts = (self.won.get(app_id, {}), self.leftovers.get(app_id, {}))
        return sum(sum(part.values()) for part in parts)

    def payment(self, app_id: str) -> float | None:
        """The share c_i that a winner kept, or None for an app that won nothing in the auction."""
        share = (self.auction or {}).get("payments", {}).get(app_id)
        return None if share is None else float(share)

    @property
    def solve_s(self) -> float | None:
        """Seconds that the auction took; None before it."""
        return None if self.auction is None else 1e-3 * float(self.auction["solve_ms"])


def round_document(record: RoundRecord) -> dict[str, object]:
    """The round for JSON, as docs/reference/web.md describes it."""
    return {
        "round_id": record.round_id,
        "started_at_s": record.started_at_s,
        "duration_s": finite(record.duration_s),
        "outcome": record.outcome or None,
        "reasons": list(record.reasons),
        "gpus_offered": record.gpus_offered,
        "active_apps": len(record.active),
        "worst_first": record.worst_first(),
        "reports": {
            app: {"rho": finite(rho), "demand_gpus": record.demand_gpus.get(app, 0)} for app, rho in record.rho.items()
        },
        "reports_absent": list(record.absent),
        "offered": list(record.offered),
        "bids": {app: _bid_document(bid) for app, bid in record.bids.items()},
        "bids_absent": dict(record.bids_absent),
        "bids_s": finite(record.bids_s),
        "auction": None if record.auction is None else _auction_document(record.auction),
        "won_gpus": dict(record.won),
        "leftover_gpus": dict(record.leftovers),
        "usable_left_gpus": record.usable_left,
        "refused": dict(record.refused),
    }


def round_text(record: RoundRecord) -> str:
    """The round as JSON. It names every app, so that of a round that has ended, and changes no more, is kept."""
    text = record.text or json.dumps(round_document(record), allow_nan=False)
    if record.outcome:
        record.text = text
    return text


def _bid_document(bid: Mapping[str, Any]) -> dict[str, object]:
    return {
        "rows": bid["rows"],
        "rows_dropped": bid["rows_dropped"],
        "best_value": finite(float(bid.get("best_value", math.nan))),
        "empty_value": finite(float(bid["empty_value"])),
        "prepare_s": finite(1e-3 * float(bid["prepare_ms"])),
    }


def _auction_document(auction: Mapping[str, Any]) -> dict[str, object]:
    return {
        "status": auction["status"],
        "gap": finite(float(auction.get("gap", math.nan))),
        "solve_s": finite(1e-3 * float(auction["solve_ms"])),
        "bidders": auction["bidders"],
        "proportional_fair_gpus": dict(auction.get("proportional_fair", {})),
        "payments": {app: finite(float(share)) for app, share in auction.get("payments", {}).items()},
    }


# ---- events ---------------------------------------------------------------------------------------------------------

Detail = Mapping[str, Any]


def _started(record: RoundRecord, detail: Detail, _time_s: float) -> None:
    record.reasons = tuple(detail["reasons"])
    record.gpus_offered = sum(detail["free"].values())
    record.active = tuple(detail["active"])


def _reported(record: RoundRecord, detail: Detail, time_s: float) -> None:
    # The store writes what JSON lacks as text, which float reads back.
    record.rho = {app: float(rho) for app, rho in detail["rho"].items()}
    record.demand_gpus = dict(detail["demand_gpus"])
    record.absent = tuple(detail["absent"])
    record.reported_at_s = time_s


def _offered(record: RoundRecord, detail: Detail, time_s: float) -> None:
    record.offered = tuple(detail["apps"])
    record.offered_at_s = time_s


def _bids(record: RoundRecord, detail: Detail, time_s: float) -> None:
    record.bids = dict(detail["bids"])
    record.bids_absent = dict(detail["absent"])
    record.bids_s = None if record.offered_at_s is None else time_s - record.offered_at_s


def _auctioned(record: RoundRecord, detail: Detail, _time_s: float) -> None:
    record.auction = detail


def _granted(record: RoundRecord, detail: Detail, time_s: float) -> None:
    record.won = dict(detail["auction"])
    record.leftovers = dict(detail["leftovers"])
    record.usable_left = detail["usable_left"]
    record.refused = dict(detail.get("refused", {}))
    waits = msgspec.convert(detail.get("waits", {}), dict[str, Wait])
    record.waits = {app_id: wait.text(time_s) for app_id, wait in waits.items()}
    record.granted = True
    decide_ms = detail.get("decide_ms")
    record.decide_s = None if decide_ms is None else 1e-3 * float(decide_ms)


def _ended(record: RoundRecord, detail: Detail, _time_s: float) -> None:
    record.duration_s = 1e-3 * float(detail["duration_ms"])
    record.outcome = detail["outcome"]


_TAKERS: Mapping[str, Callable[[RoundRecord, Detail, float], None]] = {
    "round_started": _started,
    "round_reported": _reported,
    "round_offered": _offered,
    "round_bids": _bids,
    "round_auctioned": _auctioned,
    "round_granted": _granted,
    "round_ended": _ended,
}
