"""One colour per app, distinguishable for most people and readable on white and on black."""

from __future__ import annotations

import colorsys
from collections.abc import Iterable

PALETTE = (
    "#4e79a7",
    "#f28e2b",
    "#59a14f",
    "#e15759",
    "#9c6bd3",
    "#2bb3b1",
    "#d4a72c",
    "#ef7fb0",
    "#9c755f",
    "#7fb8e6",
    "#86bc3c",
    "#8a8f98",
    "#b03a6f",
    "#1f7a5c",
)
_GOLDEN = 0.61803398875


def app_colours(names: Iterable[str]) -> dict[str, str]:
    """A colour for each name, in order. Beyond the palette, hues are as far apart as possible."""
    return {name: _colour(index) for index, name in enumerate(names)}


def _colour(index: int) -> str:
    if index < len(PALETTE):
        return PALETTE[index]
    red, green, blue = colorsys.hls_to_rgb((index * _GOLDEN) % 1.0, 0.55, 0.5)
    return f"#{round(255 * red):02x}{round(255 * green):02x}{round(255 * blue):02x}"
