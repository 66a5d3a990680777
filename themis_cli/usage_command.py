"""`themis usage`: GPU hours by user, queue or device type and month, as metered from leases; or by app."""

from __future__ import annotations

import argparse
import csv
import os
import sys
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from themis_cli.parsers import Subcommands
from themis_cli.rm_command import add_connection_to

if TYPE_CHECKING:
    from submarine_client.connection import Connection
    from themis.wire import themis_pb2 as pb

_KEYS = ("user", "queue", "device", "app")
_HOUR_S = 3_600.0

Row = tuple[str, str, float]
"""Month, name, and GPU seconds."""


def add_to(commands: Subcommands) -> None:
    """Add `usage`."""
    usage = commands.add_parser(
        "usage",
        help="GPU hours by user and month: your own and those of queues that you administer, or all for administrators",
    )
    usage.add_argument(
        "--by",
        choices=_KEYS,
        default="user",
        help="what a row stands for; by app: whole GPU time, in the month of the app's end; default: user",
    )
    usage.add_argument("--month", default="", metavar="YYYY-MM", help="one month, UTC; default: all")
    usage.add_argument("--csv", action="store_true", help="print CSV, with GPU seconds")
    add_connection_to(usage)
    usage.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    from submarine_client.address import rm_address
    from submarine_client.connection import Connection

    with Connection(rm_address(options.rm, os.environ), ca=options.ca) as connection:
        # Asked in any case: it checks the month.
        metered = connection.usage(options.month)
        rows = _by_app(connection, options.month) if options.by == "app" else usage_rows(metered, options.by)
    if options.csv:
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow(("month", options.by, "gpu_s"))
        writer.writerows((month, name, f"{gpu_s:.0f}") for month, name, gpu_s in rows)
    else:
        sys.stdout.write(_table(rows, options.by))
    return 0


def usage_rows(metered: Iterable[pb.UsageRow], by: str) -> list[Row]:
    """Sum up rows by month and one of their fields, in the order of the months, the largest use of each first."""
    sums: dict[tuple[str, str], float] = {}
    for row in metered:
        key = row.month, getattr(row, by)
        sums[key] = sums.get(key, 0.0) + row.gpu_s
    return sorted(((month, name, gpu_s) for (month, name), gpu_s in sums.items()), key=lambda row: (row[0], -row[2]))


def _by_app(connection: Connection, month: str) -> list[Row]:
    from submarine_client.app_list import Selection, select

    # Lists of apps have those of all users.
    users = {row.user for row in connection.usage("")}
    if not users:
        return []
    # Use from before an upgrade may have no user. Only administrators see it, and they see all apps.
    rows = []
    for app in select(connection, Selection(users=() if "" in users else sorted(users))).apps:
        ended = f"{datetime.fromtimestamp(app.finished_at_s, UTC):%Y-%m}" if app.finished_at_s else "runs"
        if month in ("", ended):
            rows.append((ended, app.app_id, app.gpu_time_s))
    return sorted(rows)


def _table(rows: Sequence[Row], by: str) -> str:
    lines = [f"{'month':<8} {by:<24} {'GPU hours':>12}"]
    lines += [f"{month:<8} {name or '-':<24} {gpu_s / _HOUR_S:>12.2f}" for month, name, gpu_s in rows]
    return "\n".join(lines) + "\n"
