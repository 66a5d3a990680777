"""Why an app has no more GPUs: its place in the newest round by finish-time fairness, and who stood before it. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from rm_plugin.service.web.round_record import RoundRecord
from themis.values import Value
from themis.web.formatting import counted, number

MAX_AHEAD = 20


class Waiting(Value, frozen=True, kw_only=True):
    """An app in the newest round that asked for rho.

    Attributes:
        round_id: The round; None when there was none yet.
        rank: The app's place by rho, 1 is the worst off; None when it did not report.
        of: How many apps reported.
        ahead: Apps with a larger rho that asked for GPUs, worst first, `MAX_AHEAD` at most.
        reason: What became of the app, a clause.
    """

    round_id: int | None = None
    rank: int | None = None
    of: int = 0
    ahead: tuple[str, ...] = ()
    reason: str


def why_waiting(app_id: str, rounds: Sequence[RoundRecord], policy: str, noun: str = "GPU") -> Waiting:
    """How the newest of `rounds` (newest first) that has reports treated the app. `noun` is what a device is called.

    A round that is still running has no result yet, so the one before it counts, if there is one.
    """
    reported = [record for record in rounds if record.reported_at_s is not None]
    record = next((record for record in reported if record.granted or record.outcome), None)
    if record is None and not reported:
        return Waiting(reason="no round has been played yet")
    record = record or reported[0]
    order = record.worst_first()
    if app_id not in record.rho:
        return Waiting(round_id=record.round_id, of=len(order), reason=_without_report(app_id, record))
    place = order.index(app_id)
    before = [app for app in order[:place] if record.demand_gpus.get(app, 0) > 0]
    return Waiting(
        round_id=record.round_id,
        rank=place + 1,
        of=len(order),
        ahead=tuple(before[:MAX_AHEAD]),
        reason=_with_report(app_id, record, policy, noun),
    )


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
    return f"{policy} gave the {noun}s of {name} to others"
