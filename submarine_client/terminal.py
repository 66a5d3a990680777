"""The command's output: results on standard output, everything else on standard error."""

from __future__ import annotations

import io
import re
import shutil
import sys
import textwrap
from collections.abc import Iterable
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


UNLIMITED = sys.maxsize
"""The width of a text that no terminal shows."""

_FIELD_WIDTH = 15
"""Columns of a field's label with its colon. A blank and the value follow."""


def fields(values: Iterable[tuple[str, str]], width: int = UNLIMITED) -> str:
    """Format fields: a label and its value on a line each, values broken to fit `width` columns."""
    return "\n".join(wrapped(f"{label + ':':<{_FIELD_WIDTH}} ", harmless(value), width) for label, value in values)


def wrapped(before: str, text: str, width: int) -> str:
    """Return `before` and a text, which is broken at blanks to fit `width` columns, its lines below each other.

    A word that is too long, such as a path, is on a line of its own, unbroken.
    """
    room = width - len(before)
    if len(text) <= room:
        return before + text
    # Of a blank text nothing is left.
    parts = textwrap.wrap(text, max(1, room), break_long_words=False, break_on_hyphens=False) or [""]
    return f"\n{' ' * len(before)}".join([before + parts[0], *parts[1:]])


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

    def clear(self) -> None:
        """Clear the screen, if standard output is one; else leave an empty line before what comes next."""
        self.out.write("\x1b[H\x1b[2J" if self.out.isatty() else "\n")

    @property
    def width(self) -> int:
        """How many columns a line of a result may have: those of the terminal; in a pipe or a file any number."""
        return shutil.get_terminal_size().columns if self.out.isatty() else UNLIMITED

    @property
    def live(self) -> bool:
        """Whether standard error is a terminal, so that progress can be redrawn."""
        return self.err.isatty()
