"""The command's output: results on standard output, everything else on standard error."""

from __future__ import annotations

import io
import sys
from typing import TextIO

from themis.values import Value

PREFIX = "submarine: "


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

    def write(self, text: str) -> None:
        """Write a part of a result unchanged."""
        self.out.write(text)
        self.out.flush()

    def note(self, text: str) -> None:
        """Write a note to standard error."""
        self.err.write(f"{PREFIX}{text}\n")
        self.err.flush()

    @property
    def live(self) -> bool:
        """Whether standard error is a terminal, so that progress can be redrawn."""
        return self.err.isatty()
