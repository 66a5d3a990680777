"""From a line of a log to a record. Formats are functions in a list: a new one is a new module and one more entry."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from am.profiler.estimator_format import parse_estimator
from am.profiler.records import Record
from am.profiler.themis_format import parse_themis

LogFormat = Callable[[str], Record | None]
"""A format: the record of a line, or None when the line is not of this format. Never raises, whatever the line."""

FORMATS: tuple[LogFormat, ...] = (parse_estimator, parse_themis)


def parse_line(line: str | bytes, formats: Sequence[LogFormat] = FORMATS) -> Record | None:
    """The record of one line, None when no format knows it; bytes that are not UTF-8 are tolerated."""
    text = line.decode("utf-8", errors="replace") if isinstance(line, bytes) else line
    text = text.rstrip("\r\n")
    return next((record for parse in formats if (record := parse(text)) is not None), None)


def parse_lines(lines: Iterable[str | bytes], formats: Sequence[LogFormat] = FORMATS) -> list[Record]:
    """The records of many lines, in order."""
    return [record for line in lines if (record := parse_line(line, formats)) is not None]
