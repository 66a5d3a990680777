"""A choice of rows by a mixed-integer solver: its score, and like bidders served in a fixed order."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from rm_plugin.solvers.candidates import Bidder, Candidate


def score(bidders: Sequence[Bidder], chosen: Mapping[str, Candidate]) -> tuple[float, int]:
    """The log objective of a choice over the bidders of positive value, and how many these are."""
    logs = [chosen[bidder.app_id].log_value if bidder.app_id in chosen else bidder.log_empty for bidder in bidders]
    positive = [log for log in logs if log is not None]
    return math.fsum(positive), len(positive)


def deal_among_alike(bidders: Sequence[Bidder], chosen: Mapping[str, Candidate]) -> dict[str, Candidate]:
    """Among bidders whose bids say the same, in whatever order, give the better rows to the earlier app ids.

    Args:
        bidders: All bidders in canonical form, by app id: rows that say the same stand at the same place.
        chosen: The row won by app id.
    """
    groups: dict[tuple[object, ...], list[Bidder]] = {}
    for bidder in bidders:
        groups.setdefault(_content(bidder), []).append(bidder)
    dealt: dict[str, Candidate] = {}
    for alike in groups.values():
        places = sorted(bidder.candidates.index(chosen[bidder.app_id]) for bidder in alike if bidder.app_id in chosen)
        dealt |= {bidder.app_id: bidder.candidates[place] for bidder, place in zip(alike, places, strict=False)}
    return dict(sorted(dealt.items()))


def _content(bidder: Bidder) -> tuple[object, ...]:
    """What a bid says, wherever its rows stand."""
    rows = tuple((row.log_value, row.kinds, row.pinned, tuple(sorted(row.pinned_parts))) for row in bidder.candidates)
    return (bidder.log_empty, rows)
