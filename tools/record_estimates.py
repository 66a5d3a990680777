"""Record the estimates of a live ResourceManager until it stops, and print how many of their intervals held.

Start it beside a run, for example `make testbed OUT=out/run`:

    python tools/record_estimates.py out/run/state/address --every 2
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median

from submarine_client.connection import Connection
from submarine_client.rpc_errors import NotFoundError
from themis.errors import UnreachableError
from themis.values import Value
from themis.wire import themis_pb2 as pb
from themis.wire.app_status import has_ended


class Seen(Value, frozen=True):
    """An estimate that an app had at a time."""

    app_id: str
    at_s: float
    held: bool
    estimate: pb.AppEstimate


def record(address: str, every_s: float) -> tuple[list[Seen], dict[str, float], dict[str, list[float]]]:
    """The estimates, when each app ended, and when each app had GPUs, until the ResourceManager is gone."""
    seen: list[Seen] = []
    ended_at_s: dict[str, float] = {}
    held_at_s: dict[str, list[float]] = {}
    with Connection(address) as connection:
        while True:
            try:
                for app in connection.list():
                    if has_ended(app):
                        ended_at_s[app.app_id] = app.finished_at_s
                        continue
                    whole, now_s = connection.show(app.app_id), time.time()
                    if whole.gpus:
                        held_at_s.setdefault(app.app_id, []).append(now_s)
                    if whole.HasField("estimate"):
                        seen.append(Seen(app.app_id, now_s, bool(whole.gpus), whole.estimate))
            except (NotFoundError, UnreachableError):
                return seen, ended_at_s, held_at_s
            time.sleep(every_s)


def holds(interval: pb.Seconds, actual_s: float) -> bool:
    """Whether an interval contains the actual time. Half a second of tolerance covers the polling."""
    return bool(interval.low - 0.5 <= actual_s <= interval.high + 0.5)


def report(line: str) -> None:
    """Print a line."""
    sys.stdout.write(f"{line}\n")


def main(arguments: Sequence[str] | None = None) -> int:
    """Wait for the file with the address, record, and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("address_file", type=Path, help="the file `address` in the state folder of the ResourceManager")
    parser.add_argument("--every", type=float, default=2.0, metavar="S", help="seconds between two estimates (2)")
    options = parser.parse_args(arguments)
    while not options.address_file.is_file():
        time.sleep(0.5)
    seen, ended_at_s, held_at_s = record(options.address_file.read_text().strip(), options.every)
    ends = [(each, ended_at_s[each.app_id] - each.at_s) for each in seen if each.app_id in ended_at_s]
    waits = [(each, [at_s for at_s in held_at_s.get(each.app_id, ()) if at_s > each.at_s]) for each in seen]
    firsts = [(each, later[0] - each.at_s) for each, later in waits if later and not each.held]
    report(f"{len({each.app_id for each, _ in ends})} apps, {len(ends)} estimates")
    for name, pairs in (
        ("end", [(each.estimate.end_s, actual_s) for each, actual_s in ends]),
        ("first GPU", [(each.estimate.first_gpu_s, actual_s) for each, actual_s in firsts]),
    ):
        if pairs:
            share = sum(holds(*pair) for pair in pairs) / len(pairs)
            error_s = median(abs(interval.median - actual_s) for interval, actual_s in pairs)
            report(f"{name}: {len(pairs)} estimates, {share:.0%} hold, median error {error_s:.1f} s")
    for low_s, high_s in ((0, 15), (15, 30), (30, 60), (60, 120), (120, 1e9)):
        expected = [(each.estimate.end_s.median, actual_s) for each, actual_s in ends]
        errors_s = [abs(median_s - actual_s) for median_s, actual_s in expected if low_s <= median_s < high_s]
        if errors_s:
            report(
                f"end, expected in {low_s:g} to {high_s:g} s: {len(errors_s)}, median error {median(errors_s):.1f} s"
            )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
