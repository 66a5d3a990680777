"""Fair shares for readers: a line per tenant, then what holds for all."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table
from rich.text import Text

from rm_plugin.policies.oef.audit import largest_envy, sharing_incentive
from themis_cli.instance_input import printable

if TYPE_CHECKING:
    from rm_plugin.policies.oef.fair_share import FairShare
    from rm_plugin.policies.oef.speedup import Instance

_PLAIN_COLUMNS = 120


def print_shares(
    mode: str,
    instance: Instance,
    fair: FairShare,
    solve_s: float,
    more_type: str | None,
    more: Mapping[str, float] | None,
) -> None:
    """Print a table of the tenants by id, and properties of the whole allocation."""
    # Without a terminal rich assumes 80 columns, too few for many types.
    console = Console(highlight=False, width=None if sys.stdout.isatty() else _PLAIN_COLUMNS)
    table = Table(box=None, pad_edge=False)
    table.add_column("tenant", overflow="fold")
    headings = (
        *instance.types,
        "efficiency",
        "sharing incentive",
        *(() if more is None else (f"one more {more_type}",)),
    )
    for heading in headings:
        table.add_column(printable(heading), justify="right", overflow="fold")
    table.add_column("envies", overflow="fold")
    incentive, envious = sharing_incentive(fair), largest_envy(fair)
    for tenant, share in fair.share.items():
        numbers = [*share, fair.efficiency[tenant], incentive[tenant], *(() if more is None else (more[tenant],))]
        envy = f"{printable(envious[tenant].of)} by {envious[tenant].by:.4g}" if tenant in envious else "-"
        table.add_row(*(Text(cell) for cell in (printable(tenant), *(f"{number:.4f}" for number in numbers), envy)))
    console.print(table)
    reference = printable(instance.types[fair.speedups.reference])
    lines = [
        f"{mode}, {fair.status.value}: total efficiency {fair.total:.6g} {reference} GPUs; solved in {solve_s:.4f} s"
    ]
    if fair.prices is not None:
        prices = zip(instance.types, fair.prices, strict=True)
        known = (f"{printable(name)} {price:.4g}" for name, price in prices if price is not None)
        lines.append(f"prices: {', '.join(known)}")
    for line in (*lines, *(f"warning: {warning}" for warning in fair.speedups.warnings)):
        console.print(Text(printable(line)), soft_wrap=True)
