"""Parse numbers in the fields of traces."""

from __future__ import annotations

import re
from math import isfinite

_NUMBER = re.compile(r"\s*[-+]?(\d+(\.\d*)?|\.\d+)([eE][-+]?\d+)?\s*", re.ASCII)


def number_of_field(text: str | None) -> float | None:
    """Parse a field as a finite number of 0 or more. Returns None for any other text.

    Stricter than `float`, which also reads `1_0` as 10 and accepts the digits of every script.
    """
    if text is None or not _NUMBER.fullmatch(text):
        return None
    number = float(text)
    return number if isfinite(number) and number >= 0.0 else None
