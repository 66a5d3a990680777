"""Matplotlib figures as SVG text that takes colours and typeface from the page."""

from __future__ import annotations

import html
import io
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

INK = "#010203"
GRID = "#040506"
"""Colours that no figure uses for data; the page's own colours replace them, in light and dark mode."""

# Matplotlib's types name every key, so a plain dictionary of texts does not fit them.
_STYLE: Any = {
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.size": 9.0,
    "text.color": INK,
    "axes.edgecolor": GRID,
    "axes.labelcolor": INK,
    "axes.titlesize": 10.0,
    "axes.titleweight": "bold",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.facecolor": "none",
    "figure.facecolor": "none",
    "xtick.color": INK,
    "ytick.color": INK,
    "grid.color": GRID,
    "grid.linewidth": 0.6,
    "hatch.linewidth": 0.6,
}
_TIP = re.compile(r'<g id="tip:([^"]*)">')


@contextmanager
def house_style() -> Iterator[None]:
    """Figures made within this context have the style of the page."""
    with mpl.rc_context(_STYLE):
        yield


def tip(text: str) -> str:
    """The `gid` of an artist that shows this text as a tooltip."""
    return f"tip:{html.escape(text, quote=True)}"


def to_svg(figure: Figure, name: str) -> str:
    """The figure as an `svg` element.

    Args:
        figure: A figure in the house style.
        name: Unique on the page; all ids inside begin with it. Equal figures give equal text.
    """
    buffer = io.StringIO()
    with mpl.rc_context({"svg.hashsalt": name, **_STYLE}):
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None}, transparent=True)
    text = buffer.getvalue()
    text = text[text.index("<svg") :]
    text = _TIP.sub(lambda match: f"<g><title>{_unescaped_once(match[1])}</title>", text)
    text = re.sub(r'\bid="([^"]+)"', rf'id="{name}-\1"', text)
    text = re.sub(r'href="#([^"]+)"', rf'href="#{name}-\1"', text)
    text = re.sub(r"url\(#([^)]+)\)", rf"url(#{name}-\1)", text)
    text = re.sub(r'<svg ([^>]*?)width="[^"]*"', r'<svg role="img" \1', text, count=1)
    text = re.sub(r'(<svg [^>]*?)height="[^"]*"', r"\1", text, count=1)
    return text.replace(INK, "var(--ink)").replace(GRID, "var(--line)")


def _unescaped_once(text: str) -> str:
    # Matplotlib escapes the id again. The title needs the text that `tip` has escaped.
    return html.unescape(text)
