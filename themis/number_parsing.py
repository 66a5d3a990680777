"""Parse numbers as users type them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T", int, float)


_MAX_DIGITS = 18


def as_whole(text: str) -> int | None:
    """Return a text of at most 18 ASCII digits as a number, and None for any other text.

    `isdigit` lets through what `int` refuses: superscripts, and more than 4,300 digits.
    """
    return int(text) if len(text) <= _MAX_DIGITS and text.isascii() and text.isdigit() else None


def parse_number(kind: Callable[[str], T], text: str) -> T:
    """Return `text` as an `int` or a `float`, whichever `kind` is. Raises ValueError if it is not one.

    Stricter than Python, which also reads `1_0` as 10 and accepts the digits of every script: such input is usually
    a typing error.
    """
    if "_" in text or not text.isascii():
        raise ValueError(text)
    return kind(text)
