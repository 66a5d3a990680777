"""The interface of a log format: how its lines start, and which records they hold."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from am.profiler.records import Record


class LogFormat(Protocol):
    """Reads the lines of one log in one format. A reader may remember earlier lines, so each log needs its own.

    Attributes:
        starts: A regular expression over bytes, without capturing groups, that matches the start of every line of the
            format. The log reader skips lines that no format's pattern matches.
        ordinary: A regular expression that matches a whole ordinary line: one that holds a step with a finite loss, or
            a rate, and nothing else. The log reader may skip some of many ordinary lines in a row.
        keep_last: Substrings of ordinary lines that hold more than other ordinary lines. For each substring, the last
            line that contains it is never skipped, because a later line may say less.
        counted: A regular expression that matches the start of an ordinary line with a step or epoch count. Its one
            group is the count.
    """

    starts: bytes
    ordinary: bytes
    keep_last: Sequence[bytes]
    counted: bytes

    def begin(self) -> None:
        """Forget earlier lines, because the next lines are from a new incarnation of the job."""
        ...

    def read(self, line: str) -> Sequence[Record]:
        """Return the records of a line, in order, or nothing if it is not of this format. Never raises."""
        ...


class LineFormat:
    """A format whose lines can be read independently of each other.

    Args:
        starts: See `LogFormat`.
        parse: Returns the record of a line, or None if it has none.
        ordinary: See `LogFormat`. By default no line is ordinary.
        keep_last: See `LogFormat`.
        counted: See `LogFormat`.
    """

    def __init__(
        self,
        starts: bytes,
        parse: Callable[[str], Record | None],
        ordinary: bytes = rb"(?!)",
        keep_last: Sequence[bytes] = (),
        counted: bytes = rb"((?!))",
    ) -> None:
        self.starts, self.ordinary, self.keep_last, self.counted = starts, ordinary, keep_last, counted
        self._parse = parse

    def begin(self) -> None:
        """Do nothing: this format remembers no lines."""

    def read(self, line: str) -> Sequence[Record]:
        """Return the line's record, if it has one."""
        record = self._parse(line)
        return () if record is None else (record,)
