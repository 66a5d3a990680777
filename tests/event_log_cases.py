"""What tests read from the ResourceManager's event log and its archive."""

import gzip
import json
from collections.abc import Iterable, Iterator
from pathlib import Path

from rm_plugin.service.policy_memory import memory_after
from rm_plugin.service.store import StoredEvent


def stored_memory(events: Iterable[StoredEvent]) -> object | None:
    """The content of the policy's memory after the last round that was granted."""
    content: object | None = None
    written = None
    for event in events:
        round_id = event.detail.get("round_id")
        if event.kind == "round_granted" and not event.app_id and isinstance(round_id, int):
            content, written = memory_after(content, written, event.detail), round_id
    return content


def read_archive(path: Path) -> Iterator[StoredEvent]:
    """The events of an archive file."""
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        for line in lines:
            yield StoredEvent(**json.loads(line))
