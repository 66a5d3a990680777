"""Numbers as users type them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T", int, float)


def plain(kind: Callable[[str], T], text: str) -> T:
    """The number that a text is, of the kind `int` or `float`; ValueError where it is none.

    Python alone would read 1_0 as 10, and the digits of every script: whoever types them means something else.
    """
    if "_" in text or not text.isascii():
        raise ValueError(text)
    return kind(text)
