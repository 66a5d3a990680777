"""A choice of rows, whichever solver made it: its score, and like bidders served in a fixed order."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from rm_plugin.solvers.candidates import Bidder, Candidate
from themis.bids import Bid


def score(bidders: Sequence[Bidder], chosen: Mapping[str, Candidate]) -> tuple[float, int]:
    """The log objective of a choice over the bidders of positive value, and how many these are."""
    logs = [chosen[bidder.app_id].log_value if bidder.app_id in chosen else bidder.log_empty for bidder in bidders]
    positive = [log for log in logs if log is not None]
    return math.fsum(positive), len(positive)


def deal_among_alike(chosen: Mapping[str, Candidate], bids: Sequence[Bid]) -> dict[str, Candidate]:
    """Among bidders with the same bid, give the better rows to the earlier app ids."""
    groups: dict[tuple[object, ...], list[str]] = {}
    for bid in sorted(bids, key=lambda bid: bid.app_id):
        groups.setdefault((bid.empty_value, bid.rows), []).append(bid.app_id)
    dealt: dict[str, Candidate] = {}
    for app_ids in groups.values():
        won = sorted(
            (chosen[app_id] for app_id in app_ids if app_id in chosen), key=lambda row: (-row.log_value, row.row)
        )
        dealt.update(zip(app_ids, won, strict=False))
    return dict(sorted(dealt.items()))
