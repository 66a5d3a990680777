"""Archive files: events that left the store, as compressed JSON lines."""

from __future__ import annotations

import gzip
import json
import math
import os
from collections.abc import Iterable
from pathlib import Path

from msgspec import to_builtins

from rm_plugin.service.store import StoredEvent
from themis.files import sync_folder

FOLDER = "archive"
"""Below `RmSettings.files_dir`."""
NO_ARCHIVE = "none"
"""Stands for the name of the file if events are dropped."""


def write_archive(folder: Path, events: Iterable[StoredEvent]) -> str:
    """Write events as they come to a new file, and wait until it is on disk.

    Returns its name, or `NO_ARCHIVE` without events.

    A ResourceManager that dies before it removes the events from its store writes them again, to the same name or to
    another. So two files may hold the same event, with the same sequence.

    Raises:
        OSError: The folder cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    half = folder / "events.part"
    first, last = math.inf, 0
    try:
        with half.open("wb") as file:
            with gzip.open(file, "wt", encoding="utf-8", compresslevel=6) as lines:
                for event in events:
                    first, last = min(first, event.sequence), max(last, event.sequence)
                    lines.write(json.dumps(to_builtins(event), separators=(",", ":"), allow_nan=False) + "\n")
            file.flush()
            os.fsync(file.fileno())
    except BaseException:
        # On a full disk, the store needs what it took.
        half.unlink(missing_ok=True)
        raise
    if not last:
        half.unlink()
        return NO_ARCHIVE
    path = folder / f"events-{first:012d}-{last:012d}.jsonl.gz"
    half.replace(path)
    sync_folder(folder)
    return path.name
