"""The text of a refused call."""

from __future__ import annotations

_MAX_BYTES = 2_000
"""gRPC drops a status whose text takes more than 8 KiB on the wire, where a byte may take three."""


def refusal_text(error: Exception) -> str:
    """Return the text of an error, cut to what gRPC delivers: it may quote a name as long as a message."""
    return str(error).encode()[:_MAX_BYTES].decode(errors="ignore")
