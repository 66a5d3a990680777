"""The inverse of `market_file`: a market as the JSON document that users write, to keep it and run it again."""

from __future__ import annotations

from themis.bids import BidRow, FreeMachine, GangRequest, Market


def market_document(market: Market) -> dict[str, object]:
    """A market as a JSON document, which `parse_market` reads back to the same market.

    What the auction does not read stays behind: a bid's round and its count of dropped rows. A market knows only the
    free GPUs of each slot, so the slots are written as large as what is free in them, and at least 1; a machine without
    slots is written as one of a single GPU that is taken.

    Args:
        market: Free machines and bids; rows must pin GPUs of these machines only.
    """
    return {
        "machines": [_machine(machine) for machine in market.machines],
        "free": {machine.machine_id: list(machine.free_slots or (0,)) for machine in market.machines},
        "empty_bundle": market.empty_bundle.value,
        "bidders": [
            {"app": bid.app_id, "empty_value": bid.empty_value, "rows": [_row(row) for row in bid.rows]}
            for bid in market.bids
        ],
    }


def _machine(machine: FreeMachine) -> dict[str, object]:
    document: dict[str, object] = {
        "id": machine.machine_id,
        "rack": machine.rack_id,
        "slots": [max(1, free) for free in machine.free_slots or (0,)],
    }
    return document if machine.device == "gpu" else document | {"device": machine.device}


def _row(row: BidRow) -> dict[str, object]:
    document: dict[str, object] = {"gangs": [_gang(gang) for gang in row.gangs]} if row.gangs else {}
    if row.pinned:
        document["pinned" if row.gangs else "gpus"] = row.pinned.by_machine()
    if row.pinned_gangs:
        document["pinned_gangs"] = [gang.by_machine() for gang in row.pinned_gangs]
    return document | {"value": row.value}


def _gang(gang: GangRequest) -> dict[str, object]:
    document: dict[str, object] = {"gpus": gang.gpus, "within": gang.within.label, "count": gang.count}
    if gang.unit_gpus != 1:
        document["unit_gpus"] = gang.unit_gpus
    return document | {"device": gang.device} if gang.device else document
