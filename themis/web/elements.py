"""HTML elements as text. Whatever is not an element already is escaped when it is put into one. Pure."""

from __future__ import annotations

import html
import math
from collections.abc import Iterable, Sequence

MOST_COLUMNS = 5
"""The most columns that fit on a narrow screen."""


class Markup(str):
    """HTML as it stands; every other text is taken for text."""

    __slots__ = ()


def markup(value: object) -> Markup:
    """Any value as HTML: text is escaped, quotes included, elements stay as they are."""
    return value if isinstance(value, Markup) else Markup(html.escape(str(value)))


def join(parts: Iterable[object], between: str = "") -> Markup:
    """Parts one after the other, text escaped; `between` is HTML."""
    return Markup(between.join(markup(part) for part in parts))


def element(name: str, *content: object, **attributes: object) -> Markup:
    """An element; attributes that are None are left out. `class_` stands for `class`, `data_keep` for `data-keep`."""
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{markup(value)}"'
        for key, value in attributes.items()
        if value is not None
    )
    return Markup(f"<{name}{written}>{join(content)}</{name}>")


def link(address: str, content: object) -> Markup:
    """A link to an address of our own making."""
    return element("a", content, href=address)


def outside_link(address: str, content: object) -> Markup:
    """Return a link to an address from outside. Only http and https become links, anything else stays text."""
    if not address.lower().startswith(("http://", "https://")):
        return markup(content)
    return element("a", content, href=address, rel="noreferrer noopener")


def section(title: str, *content: object, note: object = "") -> Markup:
    """A titled part of a page."""
    return element("section", element("h2", title), element("p", note) if note else "", *content)


def valued(content: object, value: float | None) -> Markup:
    """Return a cell of a table that is sorted by a number instead of by its text; None comes last."""
    return element("span", content, data_value="" if value is None or not math.isfinite(value) else value)


def table(
    heads: Sequence[str], rows: Iterable[Sequence[object]], *, numbers: Iterable[str] = (), sort_as: str = ""
) -> Markup:
    """A table; the columns whose heads are in `numbers` stand to the right. With an id `sort_as` readers sort it.

    On a narrow screen a table of more than `MOST_COLUMNS` columns shows the cells of a row below each other, each
    behind the head of its column.
    """
    right = frozenset(numbers)
    classes = [' class="number"' if head in right else "" for head in heads]
    head_row = "".join(f"<th{style}>{markup(name)}</th>" for name, style in zip(heads, classes, strict=True))
    body = ""
    for row in rows:
        cells = (
            f'<td{style} data-head="{markup(head)}">{markup(cell)}</td>'
            for head, cell, style in zip(heads, row, classes, strict=True)
        )
        body += f"<tr>{''.join(cells)}</tr>"
    sort = f' id="{markup(sort_as)}" data-sort=""' if sort_as else ""
    kind = "scroll" if len(heads) <= MOST_COLUMNS else "scroll stacked"
    return Markup(
        f'<div class="{kind}"{sort}><table><thead><tr>{head_row}</tr></thead><tbody>{body}</tbody></table></div>'
    )


def search_form(table_id: str, address: str, words: str = "") -> Markup:
    """A search: a script narrows the table while one types, and `address?search=..` has all that there is."""
    box = element("input", type="search", name_="search", placeholder="name, user, state, ..", value=words)
    parts = element("label", "Search ", box), element("button", "Search all"), element("span", role="status")
    form = {"id": f"{table_id}-search", "role": "search", "action": address, "data_keep": "", "data_search": table_id}
    return element("form", *parts, class_="tools", **form)


def facts(rows: Iterable[tuple[str, object]]) -> Markup:
    """Names and values, one below the other; values that are empty are left out."""
    pairs = (element("dt", name) + element("dd", value) for name, value in rows if value != "")
    return element("dl", Markup("".join(pairs)), class_="facts")


def tiles(rows: Iterable[tuple[str, object]]) -> Markup:
    """The numbers that one looks at first, side by side."""
    return element(
        "dl",
        *(element("div", element("dt", name), element("dd", value)) for name, value in rows),
        class_="tiles",
    )
