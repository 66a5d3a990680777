"""Records that a program prints over several lines: dictionaries, and tables with a name and a value in each row.

Examples: `{'Loss/box_loss': 0.3,` and below it ` 'Loss/total_loss': 0.9}`; rows such as `| total_timesteps | 4096 |`
and `| loss | 0.9 |` between rulers, as the loggers of OpenAI's Baselines and Stable-Baselines3 print them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from am.profiler.numbers import NUMBER

_OPENED = re.compile(r"(?:.{0,200}[\s:>\]])?\{\s*(?:['\"][^'\"{}]{1,100}['\"]: .{0,300},)?\s*")
_GOES_ON = re.compile(r"\s*(?:['\"][^'\"]{1,100}['\"]: .*|[\]}{\[(),\s]+)")
_ROW = re.compile(rf"\s*[|│]\s*(?P<name>[A-Za-z][\w /@.-]{{0,60}}?)/?\s*[|│]\s*(?P<value>{NUMBER})?\s*[|│]?")
_RULER = re.compile(r"[\s|+│├┤┼└┘┴╰╯═─=-]+")
_MAX_LINES = 100
_MAX_CHARACTERS = 4096
_MIN_ROWS = 3


class LineBlocks:
    """Joins the lines of a record, so that its values are read together with its step.

    Lines of a dictionary that is too long, or that another line interrupts, are returned one by one.
    """

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._depth = self._characters = 0
        self._rows: list[str] = []

    def read(self, line: str) -> Sequence[str]:
        """Return the texts that are complete with this line. Empty while a record is open."""
        if self._lines:
            return self._in_dictionary(line)
        if self._rows or line.lstrip()[:1] in ("|", "│"):
            return self._in_table(line)
        if line[-1:] in ("{", ",") and _OPENED.fullmatch(line):
            self._open(line)
            return ()
        return (line,)

    def _open(self, line: str) -> None:
        self._lines, self._depth, self._characters = [line], line.count("{") - line.count("}"), len(line)

    def _in_dictionary(self, line: str) -> Sequence[str]:
        self._characters += len(line)
        room = len(self._lines) < _MAX_LINES and self._characters < _MAX_CHARACTERS
        if not room or not _GOES_ON.fullmatch(line):
            lines, self._lines = self._lines, []
            return (*lines, *self.read(line))
        self._lines.append(line)
        self._depth += line.count("{") - line.count("}")
        if self._depth > 0:
            return ()
        lines, self._lines = self._lines, []
        return (" ".join([lines[0], *(each.strip() for each in lines[1:])]),)

    def _in_table(self, line: str) -> Sequence[str]:
        row = _ROW.fullmatch(line)
        if row is not None and len(self._rows) < _MAX_LINES:
            if row["value"] is not None:
                self._rows.append(f"{row['name']}={row['value']}")
            return () if self._rows else (line,)
        rows, self._rows = self._rows, []
        if len(rows) >= _MIN_ROWS and _RULER.fullmatch(line):
            return (" ".join(rows),)
        return (line,)
