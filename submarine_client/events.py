"""`events`: what happened to an app, a line per event."""

from __future__ import annotations

import json
from typing import Any

from submarine_client.table import moment
from submarine_client.terminal import UNLIMITED, harmless, wrapped
from themis.event_words import sentence
from themis.wire import themis_pb2 as pb

FREQUENT = frozenset({"job_progress"})
"""Kinds of events that would hide the others: they come with each heartbeat."""


def event_object(event: pb.Event) -> dict[str, Any]:
    """Return an event, its detail as an object."""
    return {
        "sequence": event.sequence,
        "time_s": event.time_s,
        "kind": event.kind,
        "app_id": event.app_id or None,
        "detail": json.loads(event.detail or "{}"),
    }


def event_line(event: pb.Event, noun: str, width: int = UNLIMITED) -> str:
    """Format an event to fit `width` columns: `2026-01-31 10:00:00+00:00  The app runs`.

    `noun` is what a device is called.
    """
    words = sentence(event.kind, event_object(event)["detail"], event.time_s, noun or "GPU")
    return wrapped(f"{moment(event.time_s)}  ", harmless(words), width)
