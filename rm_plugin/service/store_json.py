"""Strict JSON for the store, which every JSON reader accepts. Non-finite numbers become text."""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Mapping

import msgspec


def to_json(value: Mapping[str, object]) -> str:
    """Compact JSON; NaN and infinities, which JSON lacks, become "NaN", "Infinity" and "-Infinity".

    `float` reads those texts back; protobuf's JSON mapping writes the same.
    """
    # msgspec is ten times as fast. It refuses halves of surrogate pairs, and writes null for NaN as for None.
    with contextlib.suppress(TypeError, UnicodeEncodeError):
        text = msgspec.json.encode(value).decode()
        if "null" not in text:
            return text
    try:
        return json.dumps(value, separators=(",", ":"), allow_nan=False)
    except ValueError:
        return json.dumps(_finite(value), separators=(",", ":"), allow_nan=False)


def from_json(text: str) -> Mapping[str, object]:
    """Parse a JSON object. Raises ValueError for any other text."""
    try:
        loaded = _parsed(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if not isinstance(loaded, dict):
        raise ValueError(f"no JSON object: {text[:100]!r}")
    return loaded


def _parsed(text: str) -> object:
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        # Halves of surrogate pairs, and numbers beyond those of a float.
        parsed: object = json.loads(text)
        return parsed


def _finite(value: object) -> object:
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return value
