"""`themis checkpoints`: list the checkpoints of a store, and copy them to another store."""

from __future__ import annotations

import argparse
import json
import math
import sys
from typing import TYPE_CHECKING

from themis.errors import InputError
from themis_cli.parsers import Subcommands

if TYPE_CHECKING:
    from am.checkpoints.copying import Copied
    from am.checkpoints.store import Checkpoint, CheckpointArchive

EXIT_LEFT_OUT = 1
_WAIT_S = 10.0
_MB = 1e6


def add_to(commands: Subcommands) -> None:
    """Add `checkpoints list` and `checkpoints copy`."""
    group = commands.add_parser("checkpoints", help="list and copy checkpoints").add_subparsers(
        metavar="COMMAND", required=True
    )
    listing = group.add_parser("list", help="list the checkpoints below a place, by job and iteration")
    listing.add_argument("uri", metavar="URI", help="a path, file://, hdfs:// or webhdfs://")
    listing.add_argument("--job", metavar="JOB", help="only this job's checkpoints")
    listing.add_argument("--json", action="store_true", help="print JSON")
    listing.set_defaults(run=_list)
    copying = group.add_parser("copy", help="copy checkpoints; skips those that the target already has")
    copying.add_argument("source", metavar="FROM", help="a path, file://, hdfs:// or webhdfs://")
    copying.add_argument("target", metavar="TO", help="likewise")
    copying.add_argument("--job", metavar="JOB", help="only this job's checkpoints")
    copying.add_argument("--last", type=int, metavar="K", help="only the newest K checkpoints of each job")
    copying.add_argument("--verify", action="store_true", help="read everything back from the target and compare")
    copying.set_defaults(run=_copy)
    for parser in (listing, copying):
        parser.add_argument(
            "--wait-s",
            type=float,
            default=_WAIT_S,
            metavar="S",
            help="how long to wait while HDFS is unavailable (default: %(default)s)",
        )


def _list(options: argparse.Namespace) -> int:
    from am.checkpoints.copying import chosen

    found = chosen(_open(options.uri, options), options.uri, options.job, None)
    if options.json:
        sys.stdout.write(json.dumps([_document(checkpoint) for checkpoint in found], indent=1) + "\n")
    else:
        sys.stdout.write(f"{_table(found)}\n")
    return 0


def _copy(options: argparse.Namespace) -> int:
    from am.checkpoints.copying import Outcome, chosen, copy

    if options.last is not None and options.last < 1:
        raise InputError("--last must be 1 or more", value=options.last)
    source, target = _open(options.source, options), _open(options.target, options)
    checkpoints = chosen(source, options.source, options.job, options.last)
    counts = dict.fromkeys(Outcome, 0)
    for number, copied in enumerate(copy(source, target, checkpoints, verify=options.verify), start=1):
        counts[copied.outcome] += 1
        sys.stderr.write(f"{number} of {len(checkpoints)}: {_line(copied)}\n")
    summary = ", ".join(f"{count} {outcome}" for outcome, count in counts.items() if count) or "nothing to copy"
    sys.stdout.write(f"{summary}\n")
    return EXIT_LEFT_OUT if counts[Outcome.BROKEN] + counts[Outcome.GONE] else 0


def _open(uri: str, options: argparse.Namespace) -> CheckpointArchive:
    from am.checkpoints.uri import open_store

    if not 0.0 <= options.wait_s < math.inf:
        raise InputError("--wait-s must be a number of seconds", value=options.wait_s)
    return open_store(uri, wait_s=options.wait_s)


def _line(copied: Copied) -> str:
    checkpoint = copied.checkpoint
    return f"{checkpoint.job_id} {checkpoint.iteration}, {checkpoint.size_bytes / _MB:.1f} MB: {copied.outcome}"


def _table(checkpoints: tuple[Checkpoint, ...]) -> str:
    from submarine_client.table import table

    rows = [
        (each.job_id, str(each.iteration), str(len(each.files)), f"{each.size_bytes / _MB:.1f}", each.location)
        for each in checkpoints
    ]
    return table(("JOB", "ITERATION", "FILES", "MB", "LOCATION"), rows)


def _document(checkpoint: Checkpoint) -> dict[str, object]:
    return {
        "job": checkpoint.job_id,
        "iteration": checkpoint.iteration,
        "size_bytes": checkpoint.size_bytes,
        "files": {
            record.name: {"size_bytes": record.size_bytes, "sha256": record.sha256} for record in checkpoint.files
        },
        "meta": dict(checkpoint.meta),
        "location": checkpoint.location,
    }
