"""Ways for a bidder to misreport: scale all rows, scale one row, hide rows, or change the value of its empty bundle."""

from __future__ import annotations

import random
from collections.abc import Iterator

from msgspec.structs import replace

from themis.bids import Bid
from themis.values import Value
from themis_lab.simulator.agents import rows_times

FACTORS = (0.1, 0.25, 0.5, 0.8, 0.9, 1.1, 1.25, 1.5, 2.0, 4.0, 10.0)
ROW_FACTORS = (0.5, 0.8, 1.25, 2.0)
EMPTY_FACTORS = (0.1, 0.5, 0.8, 1.25, 2.0, 10.0)


class FalseBid(Value, frozen=True, kw_only=True):
    """A bid that differs from the truth. `kind` is `factor`, `row`, `hide` or `empty`."""

    kind: str
    what: str
    bid: Bid


def lies(bid: Bid, won: int | None, rng: random.Random) -> Iterator[FalseBid]:
    """Yield misreports of every kind for one bid.

    Args:
        bid: The true bid.
        won: The row that the true bid wins; None for none.
        rng: Chooses the rows to misreport.
    """
    for factor in FACTORS:
        changed = rows_times(bid, factor)
        yield FalseBid(kind="factor", what=f"all rows times {factor:g}", bid=changed)
    yield from _about_rows(bid, _rows_of_interest(bid, won, rng))
    yield from _by_hiding(bid, won, rng)
    if bid.empty_value > 0:
        for factor in EMPTY_FACTORS:
            changed = replace(bid, empty_value=bid.empty_value * factor)
            yield FalseBid(kind="empty", what=f"empty value times {factor:g}", bid=changed)


def _rows_of_interest(bid: Bid, won: int | None, rng: random.Random) -> list[int]:
    """The row won, the best row and one random row."""
    if not bid.rows:
        return []
    best = max(range(len(bid.rows)), key=lambda index: bid.rows[index].value)
    rows = {best, rng.randrange(len(bid.rows))} | ({won} if won is not None else set())
    return sorted(rows)


def _about_rows(bid: Bid, rows: list[int]) -> Iterator[FalseBid]:
    for index in rows:
        for factor in ROW_FACTORS:
            changed = rows_times(bid, factor, index)
            yield FalseBid(kind="row", what=f"row {index} times {factor:g}", bid=changed)


def _by_hiding(bid: Bid, won: int | None, rng: random.Random) -> Iterator[FalseBid]:
    """Omit the rows of fewest GPUs (one, half, all but the largest), the row won, the best row, or a random one."""
    count = len(bid.rows)
    if count < 2:
        return
    by_size = sorted(range(count), key=lambda index: (bid.rows[index].gpus, bid.rows[index].value, index))
    hidden = {
        "the smallest row": by_size[:1],
        "the smaller half of the rows": by_size[: count // 2],
        "all rows but the largest": by_size[:-1],
        "the largest row": by_size[-1:],
        "a random row": [rng.randrange(count)],
    }
    if won is not None:
        hidden["the row that it wins"] = [won]
    for what, gone in hidden.items():
        kept = tuple(row for index, row in enumerate(bid.rows) if index not in set(gone))
        yield FalseBid(kind="hide", what=f"hides {what}", bid=replace(bid, rows=kept))
