"""Events of the testbed, and their JSON lines in `events.jsonl` (see docs/reference/events.md)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from msgspec import field

from themis.errors import InputError
from themis.values import Value
from themis.wire import themis_pb2 as pb

EVENTS_NAME = "events.jsonl"


class Event(Value, frozen=True, kw_only=True):
    """One event. `time_s` is in seconds since the epoch; the kind determines the content of `detail`."""

    sequence: int
    time_s: float
    kind: str
    app_id: str = ""
    detail: Mapping[str, Any] = field(default_factory=dict)


def event_from_message(message: pb.Event) -> Event:
    """Convert an event from its message. Raises InputError if its detail is not a JSON object."""
    detail = _parsed(message.detail or "{}", f"the detail of event {message.sequence}")
    return Event(
        sequence=message.sequence, time_s=message.time_s, kind=message.kind, app_id=message.app_id, detail=detail
    )


def event_to_line(event: Event) -> str:
    """An event as one line of JSON, without the line end."""
    content = {
        "sequence": event.sequence,
        "time_s": event.time_s,
        "kind": event.kind,
        "app_id": event.app_id,
        "detail": event.detail,
    }
    return json.dumps(content, separators=(",", ":"))


def event_from_line(line: str, source: str) -> Event:
    """The inverse of event_to_line. `source` names the place in errors."""
    content = _parsed(line, source)
    try:
        return Event(
            sequence=int(content["sequence"]),
            time_s=float(content["time_s"]),
            kind=str(content["kind"]),
            app_id=str(content["app_id"]),
            detail=dict(content["detail"]),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"{source} is no event", value=str(error)) from None


def read_events(path: Path) -> tuple[Event, ...]:
    """All events of a file, in order of their sequence.

    A last line without an end is ignored: its writer was killed while writing it.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise InputError(f"cannot read {path}", value=error.strerror, remedy="name the folder of a run") from None
    whole, _, _ = text.rpartition("\n")
    lines = whole.splitlines()
    return in_order(event_from_line(line, f"{path}, line {number}") for number, line in enumerate(lines, 1) if line)


def in_order(events: Iterable[Event]) -> tuple[Event, ...]:
    """Events by sequence without duplicates. A resumed stream may repeat some."""
    by_sequence = {event.sequence: event for event in events}
    return tuple(by_sequence[sequence] for sequence in sorted(by_sequence))


def _parsed(text: str, source: str) -> dict[str, Any]:
    try:
        content = json.loads(text)
    except ValueError as error:
        raise InputError(f"{source} is no JSON", value=str(error)) from None
    if not isinstance(content, dict):
        raise InputError(f"{source} is no JSON object", value=type(content).__name__)
    return content
