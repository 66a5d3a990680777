"""The result of an auction for readers: a line per app, and how the auction was solved."""

from __future__ import annotations

import sys

from rich.console import Console
from rich.table import Table
from rich.text import Text

from themis.bids import Bid
from themis.choices import Rounding
from themis.cluster import Allocation
from themis_cli.auction_result import AuctionResult, gpus_of
from themis_cli.instance_input import printable

_PLAIN_COLUMNS = 120
_MIXED_INTEGER = "among bidders with the same bid the earlier id gets more, then the solver's own fixed order"
TIES = {
    "exact": "fewest GPUs, then the smallest sum of digests of the rows",
    "highs": _MIXED_INTEGER,
    "gurobi": _MIXED_INTEGER,
    "brute_force": "fewest GPUs, then the smallest sum of digests of the rows",
}
"""How each solver chooses among equal optima, in one line (docs/explanation/auction.md)."""


def print_result(result: AuctionResult, *, seed: int, rounding: Rounding) -> None:
    """Print a table of the bidders by app id, and properties of the whole auction."""
    # Without a terminal rich assumes 80 columns, too few for machine names.
    console = Console(highlight=False, width=None if sys.stdout.isatty() else _PLAIN_COLUMNS)
    console.print(_table(result))
    outcome = result.outcome
    bundle = result.market.empty_bundle.value
    for line in (
        f"{outcome.status.value} by {outcome.solver}; gap {outcome.worst_gap:g}; "
        f"log objective {outcome.log_objective:.9g} ({bundle} empty bundles)",
        f"solved in {result.first_s:.4f} s, with the problems of payments {result.all_s:.4f} s",
        f"left over: {_by_machine(result.leftover)}",
        f"rounding {rounding.value}, seed {seed}",
        f"ties: {TIES[outcome.solver]}",
    ):
        console.print(Text(line), soft_wrap=True)


def _table(result: AuctionResult) -> Table:
    table = Table(box=None, pad_edge=False)
    for heading, justify in (
        ("app", "left"), ("value before", "right"), ("value won", "right"), ("row", "right"), ("GPUs", "right"),
        ("won", "left"), ("c_i", "right"), ("kept", "left"),
    ):  # fmt: skip
        table.add_column(heading, justify=justify, overflow="fold")  # type: ignore[arg-type]
    for bid in sorted(result.market.bids, key=lambda bid: bid.app_id):
        table.add_row(*(Text(cell) for cell in _cells(result, bid)))
    return table


def _cells(result: AuctionResult, bid: Bid) -> tuple[str, ...]:
    win = result.outcome.wins.get(bid.app_id)
    share = f"{result.outcome.shares[bid.app_id]:.4f}"
    if win is None:
        return (printable(bid.app_id), f"{bid.empty_value:.6g}", "-", "-", "0", "-", share, "-")
    won = gpus_of(win.gangs)
    value = f"{bid.rows[win.row].value:.6g}"
    kept = _by_machine(result.kept[bid.app_id])
    app = printable(bid.app_id)
    return (app, f"{bid.empty_value:.6g}", value, str(win.row), str(won.gpus), _by_machine(won), share, kept)


def _by_machine(gpus: Allocation) -> str:
    return " ".join(f"{printable(machine)}:{count}" for machine, count in gpus) or "nothing"
