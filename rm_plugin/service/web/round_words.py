"""What the newest round did for an app, in words. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from rm_plugin.service.web.round_record import RoundRecord
from themis.web.formatting import counted, number


def round_in_words(app_id: str, rounds: Sequence[RoundRecord], policy: str, noun: str = "GPU") -> str:
    """How the newest of `rounds` (newest first) that has reports treated the app. `noun` is what a device is called.

    A round that is still running has no result yet, so the one before it counts, if there is one.
    """
    reported = [record for record in rounds if record.reported_at_s is not None]
    record = next((record for record in reported if record.granted or record.outcome), None)
    if record is None and not reported:
        return "no round has been played yet"
    record = record or reported[0]
    return _with_report(app_id, record, policy, noun) if app_id in record.rho else _without_report(app_id, record)


def _without_report(app_id: str, record: RoundRecord) -> str:
    if app_id in record.absent:
        return f"its app master did not report rho in time for round {record.round_id}"
    return f"it came after round {record.round_id} had begun"


def _with_report(app_id: str, record: RoundRecord, policy: str, noun: str) -> str:
    name = f"round {record.round_id}"
    if record.demand_gpus.get(app_id, 0) <= 0:
        return f"it asked for nothing in {name}"
    gpus = record.gpus_of(app_id)
    if gpus:
        kept = record.payment(app_id)
        share = f", where it kept {number(kept)} of what it won and paid the rest" if kept is not None else ""
        return f"it got {counted(gpus, noun)} in {name}{share}"
    if not record.granted:
        return f"{name} {'was abandoned' if record.outcome else 'is being played'}"
    return _empty_handed(app_id, record, policy, noun)


def _empty_handed(app_id: str, record: RoundRecord, policy: str, noun: str) -> str:
    name = f"round {record.round_id}"
    if app_id in record.waits:
        return f"by {name}, {record.waits[app_id]}"
    if app_id in record.bids:
        return f"it bid in {name} and got nothing"
    if app_id in record.bids_absent:
        return f"it was offered {noun}s in {name} but sent no bid: {record.bids_absent[app_id]}"
    if record.offered:
        apps = counted(len(record.offered), "app")
        return f"{name} offered its {noun}s to the {apps} with the worst rho, and left none over that it could use"
    if any(map(record.gpus_of, {*record.won, *record.leftovers})):
        return f"{policy} gave the {noun}s of {name} to others"
    return f"{policy} gave it no more {noun}s in {name}, and none to others"
