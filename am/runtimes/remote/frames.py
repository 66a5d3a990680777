"""The task host protocol: frames between an app master and its task hosts.

A frame is a line of JSON, its header, then `size` bytes of payload. The task host (H) connects to the app master (A):

    H: {"kind": "hello", "size": 0, "seat": "app1-1-7", "nonce": ".."}
    A: {"kind": "proof", "size": 0, "nonce": "..", "proof": ".."}
    H: {"kind": "join", "size": 0, "proof": "..", "pid": 41, "task_run": 1, "address": "10.0.0.4:40123",
        "job_dir": "/tmp/job"}
    A: {"kind": "welcome", "size": 0, "received": {}}
    A: {"kind": "code", "size": 2048, "task_run": 1, "offset": 0}, then 2048 bytes, if code travels with the app
    A: {"kind": "run", "size": 0, "task_run": 1, "command": ["python", "train.py"], ..}
    H: {"kind": "file", "size": 812, "task_run": 1, "name": "log", "offset": 0}, then 812 bytes of the log
    H: {"kind": "memory", "size": 0, "task_run": 1, "peak_mb": 412.5}, whenever its task's peak has grown
    H: {"kind": "exit", "size": 0, "task_run": 1, "code": 0, "tidy": true}
    A: {"kind": "next", "size": 0, "task_run": 2}
    H: {"kind": "ready", "size": 0, "task_run": 2, "address": "10.0.0.4:40127", "job_dir": "/tmp/job-2"}
    A: {"kind": "leave", "size": 0}

Each side proves that it knows the token of the seat, which itself does not travel. Otherwise another user's process
that took the port of an app master that died would get the token, and could order the host to run any program.

`task_run` numbers the tasks of one container. `stop` asks a task to end, and `refused` ends a host that the app master
does not know. If the connection breaks, the host connects again. `welcome` has the number of bytes that the app
master has of each file, the orders are repeated, and each side ignores what it knows.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import secrets
from collections.abc import Mapping
from typing import Any

from themis.values import Value

MAX_HEADER_BYTES = 1 << 20
MAX_PAYLOAD_BYTES = 1 << 20
CHUNK_BYTES = 1 << 16

ADDRESS_VARIABLE = "THEMIS_AM_ADDRESS"
SEAT_VARIABLE = "THEMIS_SEAT_ID"
TOKEN_VARIABLE = "THEMIS_SEAT_TOKEN"
LOG_DIR_VARIABLE = "THEMIS_TASK_LOG_DIR"

APP_MASTER, TASK_HOST = "app master", "task host"
"""The sides of a connection in their proofs."""


class BrokenFrameError(ConnectionError):
    """The other side sent bytes that are not a frame of this protocol."""


class Frame(Value, frozen=True):
    """One message: its kind, its fields and its payload."""

    kind: str
    fields: Mapping[str, Any]
    payload: bytes = b""


def encode(kind: str, payload: bytes = b"", **fields: object) -> bytes:
    """Encode a frame as bytes. JSON must be able to represent the fields."""
    header = {"kind": kind, "size": len(payload), **fields}
    return json.dumps(header, separators=(",", ":")).encode() + b"\n" + payload


def new_nonce() -> str:
    """Return a text that is used once, so that no proof is valid a second time."""
    return secrets.token_hex(16)


def proof(token: str, who: str, seat_id: str, host_nonce: str, app_master_nonce: str) -> str:
    """Return what proves that one side, `who`, knows the token of a seat on this connection."""
    content = json.dumps([who, seat_id, host_nonce, app_master_nonce])
    return hmac.new(token.encode(), content.encode(), "sha256").hexdigest()


def is_proven(frame: Frame, expected: str) -> bool:
    """Whether a frame carries the expected proof, compared in constant time."""
    return hmac.compare_digest(str(frame.fields.get("proof")).encode("utf-8", "replace"), expected.encode())


async def read(reader: asyncio.StreamReader) -> Frame | None:
    """Read the next frame. Returns None at the end of the stream. Raises BrokenFrameError for anything but a frame."""
    try:
        line = await reader.readuntil(b"\n")
    except asyncio.IncompleteReadError as error:
        if error.partial:
            raise BrokenFrameError("the stream ended within a frame") from None
        return None
    except asyncio.LimitOverrunError:
        raise BrokenFrameError("a header has no end") from None
    try:
        header = json.loads(line)
        kind, size = str(header.pop("kind")), int(header.pop("size"))
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
        # A number that is infinite, or lists without end.
        raise BrokenFrameError("a header is not of this protocol") from None
    if not 0 <= size <= MAX_PAYLOAD_BYTES:
        raise BrokenFrameError("a payload has an impossible size")
    try:
        payload = await reader.readexactly(size) if size else b""
    except asyncio.IncompleteReadError:
        raise BrokenFrameError("the stream ended within a frame") from None
    return Frame(kind, header, payload)
