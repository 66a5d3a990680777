"""JSON for programs, on a terminal too. What it holds of an app is `themis.wire.app_document`."""

from __future__ import annotations

import json
from typing import Any

from msgspec import to_builtins

from submarine_client.terminal import CONTROL
from themis.apps import AppSpec


def dump(value: Any) -> str:
    """Format as indented JSON. The caller replaces NaN and infinities, which JSON lacks, by None first.

    Characters that could take over a terminal are escaped, also those that JSON may hold as they are.
    """
    text = json.dumps(value, indent=2, allow_nan=False, ensure_ascii=False)
    return "\n".join(CONTROL.sub(lambda match: f"\\u{ord(match[0]):04x}", line) for line in text.split("\n"))


def spec_object(app: AppSpec) -> dict[str, Any]:
    """Return an app's specification, with the kernel's names as keys."""
    fields: dict[str, Any] = to_builtins(app)
    return fields
