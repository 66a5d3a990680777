"""What tests read from the ResourceManager's event log and its archive."""

import gzip
import json
from collections.abc import Iterable, Iterator
from pathlib import Path

from rm_plugin.service.log_summary import LogSummary
from rm_plugin.service.store import StoredEvent


def stored_memory(events: Iterable[StoredEvent]) -> object | None:
    """The content of the policy's memory after the last round that was granted."""
    summary = LogSummary()
    summary.take(events)
    return summary.memory


def read_archive(path: Path) -> Iterator[StoredEvent]:
    """The events of an archive file."""
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        for line in lines:
            yield StoredEvent(**json.loads(line))
