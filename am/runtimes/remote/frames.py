"""What travels between an app master and its task hosts: a line of JSON, then as many bytes as it announces."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

MAX_HEADER_BYTES = 1 << 20
MAX_PAYLOAD_BYTES = 1 << 20
CHUNK_BYTES = 1 << 16

ADDRESS_VARIABLE = "THEMIS_AM_ADDRESS"
SEAT_VARIABLE = "THEMIS_SEAT_ID"
TOKEN_VARIABLE = "THEMIS_SEAT_TOKEN"
LOG_DIR_VARIABLE = "THEMIS_TASK_LOG_DIR"


class BrokenFrameError(ConnectionError):
    """The other side sent what is no frame: not one of ours."""


@dataclass(frozen=True, slots=True)
class Frame:
    """One message: its kind, its fields, and bytes beside them."""

    kind: str
    fields: Mapping[str, Any]
    payload: bytes = b""


def encode(kind: str, payload: bytes = b"", **fields: object) -> bytes:
    """A frame as bytes. Field values are what JSON can hold."""
    header = {"kind": kind, "size": len(payload), **fields}
    return json.dumps(header, separators=(",", ":")).encode() + b"\n" + payload


async def read(reader: asyncio.StreamReader) -> Frame | None:
    """The next frame, None at the end of the stream; anything else than a frame raises BrokenFrameError."""
    try:
        line = await reader.readuntil(b"\n")
    except asyncio.IncompleteReadError as error:
        if error.partial:
            raise BrokenFrameError("the stream ended within a frame") from None
        return None
    except asyncio.LimitOverrunError:
        raise BrokenFrameError("a header without an end") from None
    try:
        header = json.loads(line)
        kind, size = str(header.pop("kind")), int(header.pop("size"))
    except (ValueError, KeyError, TypeError, AttributeError):
        raise BrokenFrameError("a header that is not ours") from None
    if not 0 <= size <= MAX_PAYLOAD_BYTES:
        raise BrokenFrameError("a payload of a size that we never send")
    try:
        payload = await reader.readexactly(size) if size else b""
    except asyncio.IncompleteReadError:
        raise BrokenFrameError("the stream ended within a frame") from None
    return Frame(kind, header, payload)
