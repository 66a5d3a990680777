"""The command's output: results on standard output, everything else on standard error."""

from __future__ import annotations

import io
import re
import shutil
import sys
import textwrap
from typing import TextIO

from submarine_client.colours import has_colours, with_colours
from themis.values import Value

PREFIX = "submarine: "

# Controls, and characters that change the direction of the text around them.
_CONTROLS = "\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069"
CONTROL = re.compile(f"[{_CONTROLS}]")
_LOG_CONTROL = re.compile(rf"\x1b\[[0-9;]{{0,20}}m|[\n\r\t\b]|[{_CONTROLS}]")
"""In logs colours are usual, and bars that are redrawn."""


def harmless(text: str) -> str:
    r"""Return a text of one line as it can be shown: `ESC[2J`, which clears a terminal, becomes `\x1b[2J`.

    Names, hyper-parameters and last words of programs may hold such sequences.
    """
    return CONTROL.sub(lambda match: _visible(match[0]), text)


def harmless_log(text: str) -> str:
    """Return a part of a log as a terminal can show it: with its lines, colours and bars, without other sequences."""
    return _LOG_CONTROL.sub(lambda match: match[0] if _is_usual(match[0]) else _visible(match[0]), text)


def _is_usual(control: str) -> bool:
    return len(control) > 1 or control in "\n\r\t\b"


def _visible(control: str) -> str:
    return control.encode("unicode_escape").decode()


FIELD_WIDTH = 15
"""Columns of a field's label with its colon. A blank and the value follow."""

_FIELD = re.compile(rf"(?=[^:]{{1,{FIELD_WIDTH - 1}}}: )\S.{{{FIELD_WIDTH - 1}}}(?<=[: ]) (?=\S)")


def field(label: str, value: str) -> str:
    """Format a field: its label and its value on a line."""
    return f"{label + ':':<{FIELD_WIDTH}} {harmless(value)}"


def fitted(text: str, width: int) -> str:
    """Break the values of fields at blanks to fit `width` columns, the parts below each other. Other lines stay.

    A word that is too long, such as a path, is on a line of its own, unbroken.
    """
    return "\n".join(_broken(line, width) if _FIELD.match(line) else line for line in text.split("\n"))


def _broken(line: str, width: int) -> str:
    indent = " " * (FIELD_WIDTH + 1)
    value = textwrap.wrap(
        line[len(indent) :],
        max(width - len(indent), len(indent)),
        break_long_words=False,
        break_on_hyphens=False,
    )
    return f"\n{indent}".join([line[: len(indent)] + value[0], *value[1:]])


class Terminal(Value, frozen=True):
    """Two streams. Results go to `out` and can be piped; progress, notes and errors go to `err`."""

    out: TextIO
    err: TextIO

    @classmethod
    def of_process(cls) -> Terminal:
        """Return the streams of this process. Characters that their encoding lacks are replaced."""
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, io.TextIOWrapper):
                stream.reconfigure(errors="replace")
        return cls(sys.stdout, sys.stderr)

    def say(self, text: str) -> None:
        """Write lines of a result and flush: a reader in a pipe may wait for them."""
        self.out.write(text if text.endswith("\n") else text + "\n")
        self.out.flush()

    def show(self, text: str) -> None:
        """Write lines for people: as `say`, and on a terminal with colours for states."""
        self.say(with_colours(text) if has_colours(self.out) else text)

    def write(self, text: str) -> None:
        """Write a part of a log: unchanged, but on a terminal without sequences that could take it over."""
        self.out.write(harmless_log(text) if self.out.isatty() else text)
        self.out.flush()

    def note(self, text: str) -> None:
        """Write a note to standard error."""
        self.err.write(f"{PREFIX}{text}\n")
        self.err.flush()

    def show_fields(self, text: str) -> None:
        """Write fields and tables: as `show`, and on a terminal with the fields' values broken to fit its width."""
        self.show(fitted(text, self.width) if self.out.isatty() else text)

    def clear(self) -> None:
        """Clear the screen, if standard output is one; else leave an empty line before what comes next."""
        self.out.write("\x1b[H\x1b[2J" if self.out.isatty() else "\n")

    @property
    def width(self) -> int:
        """The width of a table in columns: that of the terminal, or 80 in a pipe or a file."""
        return shutil.get_terminal_size().columns if self.out.isatty() else 80

    @property
    def live(self) -> bool:
        """Whether standard error is a terminal, so that progress can be redrawn."""
        return self.err.isatty()
