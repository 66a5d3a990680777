"""Read a trace line by line, so that a line that cannot be read spoils no other."""

from __future__ import annotations

import codecs
import csv
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from themis.errors import InputError


def numbered_lines(path: Path, remedy: str) -> Iterator[tuple[int, bytes]]:
    """Return the lines that are not blank, each with its number.

    Raises:
        InputError: The file cannot be read.
    """
    try:
        content = path.read_bytes().removeprefix(codecs.BOM_UTF8)
    except OSError as error:
        raise InputError(f"cannot read {path}", value=error.strerror, remedy=remedy) from None
    return ((number, line) for number, line in enumerate(content.splitlines(), start=1) if line.strip())


def text_of(line: bytes, place: str) -> str:
    """Return a line as text. Raises InputError if it is not in UTF-8."""
    try:
        return line.decode()
    except UnicodeDecodeError as error:
        value = line[max(0, error.start - 10) : error.end + 10]
        raise InputError(f"{place}: not text in UTF-8", value=value) from None


def fields_of(line: bytes, place: str) -> list[str]:
    """Return the fields of a line of comma-separated values. A field cannot go on in the next line.

    Raises:
        InputError: The line cannot be read: a quote has no end, for example.
    """
    try:
        return next(csv.reader([text_of(line, place)], strict=True))
    except csv.Error as error:
        raise InputError(f"{place}: cannot be parted into fields ({error})", value=line[:100]) from None


def table_columns(lines: Iterator[tuple[int, bytes]], needed: Sequence[str], path: Path) -> list[str]:
    """Return the columns of a table, which its first line names.

    Raises:
        InputError: A column that is needed is missing, or there twice.
    """
    number, line = next(lines, (1, b""))
    columns = fields_of(line, f"{path}, line {number}") if line else []
    for name in needed:
        if name not in columns:
            remedy = f"its first line must name {', '.join(needed)}"
            raise InputError(f"{path}, line {number}: column {name} is missing", remedy=remedy)
        if columns.count(name) > 1:
            raise InputError(f"{path}, line {number}: column {name} is there twice", remedy="name each column once")
    return columns


def table_row(columns: Sequence[str], line: bytes, place: str) -> Mapping[str, str]:
    """Return the fields of a row by column. A row that ends early lacks the last ones.

    Raises:
        InputError: The line cannot be read, or has more fields than there are columns.
    """
    fields = fields_of(line, place)
    if surplus := fields[len(columns) :]:
        remedy = "a comma within a field must stand in quotes"
        raise InputError(f"{place}: more fields than there are columns", value=surplus, remedy=remedy)
    return dict(zip(columns, fields, strict=False))
