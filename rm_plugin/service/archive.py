"""Archive files: events that left the store, as compressed JSON lines."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from msgspec import to_builtins

from rm_plugin.service.store import StoredEvent

FOLDER = "archive"
"""Below `state_dir`."""
NO_ARCHIVE = "none"
"""Stands for the name of the file if events are dropped."""


def write_archive(folder: Path, events: Sequence[StoredEvent]) -> str:
    """Write events, in order of their sequence, to a new file that is synced. Returns its name.

    A ResourceManager that dies before it removes the events from its store writes them again, to the same name or to
    another. So two files may hold the same event; its sequence tells.

    Raises:
        OSError: The folder cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    ordered = sorted(events, key=lambda event: event.sequence)
    path = folder / f"events-{ordered[0].sequence:012d}-{ordered[-1].sequence:012d}.jsonl.gz"
    half = path.with_suffix(".part")
    with half.open("wb") as file:
        with gzip.open(file, "wt", encoding="utf-8", compresslevel=6) as lines:
            for event in ordered:
                lines.write(json.dumps(to_builtins(event), separators=(",", ":"), allow_nan=False) + "\n")
        file.flush()
        os.fsync(file.fileno())
    half.replace(path)
    return path.name


def read_archive(path: Path) -> Iterator[StoredEvent]:
    """Yield the events of a file. Raises OSError or ValueError if it cannot be read."""
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        for line in lines:
            yield StoredEvent(**json.loads(line))
