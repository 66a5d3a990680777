"""What a format of log lines is: how its lines start, and what they tell."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from am.profiler.records import Record


class LogFormat(Protocol):
    """Reads the lines of one log in one format. It may remember earlier lines; every log has a reader of its own.

    Attributes:
        starts: A regular expression over bytes, without groups that capture: how all lines of the format start. Lines
            that start in no format's way are passed over without being looked at one by one.
        ordinary: Another: the whole of a line that tells a step with a loss that is a number, or a rate, and nothing
            else. Of many such lines in a row some may be left out without a change to what the others tell.
        telling: What stands in those ordinary lines that tell more than others of the format. Of each, the last line
            that it stands in is never left out: a later one need not say as much.
        counted: How the ordinary lines start that tell how far a job is, up to a group with that number.
    """

    starts: bytes
    ordinary: bytes
    telling: Sequence[bytes]
    counted: bytes

    def begin(self) -> None:
        """Forget what was read: a new incarnation of the job writes from here on."""
        ...

    def read(self, line: str) -> Sequence[Record]:
        """What a line tells, in order; nothing when it is not of this format. Never raises, whatever the line."""
        ...


class LineFormat:
    """A format whose lines can be read one by one.

    Args:
        starts: As of LogFormat.
        parse: The record of a line, or None.
        ordinary: As of LogFormat; by default no line is.
        telling: As of LogFormat.
        counted: As of LogFormat.
    """

    def __init__(
        self,
        starts: bytes,
        parse: Callable[[str], Record | None],
        ordinary: bytes = rb"(?!)",
        telling: Sequence[bytes] = (),
        counted: bytes = rb"((?!))",
    ) -> None:
        self.starts, self.ordinary, self.telling, self.counted = starts, ordinary, telling, counted
        self._parse = parse

    def begin(self) -> None:
        """Nothing is remembered."""

    def read(self, line: str) -> Sequence[Record]:
        """The line's record, if it has one."""
        record = self._parse(line)
        return () if record is None else (record,)
