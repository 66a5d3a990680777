"""Where a journal's lines are kept: a port for what is only appended to, and the adapter for a local file."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Protocol

from themis.errors import ThemisError
from themis.files import open_regular


class JournalError(ThemisError, OSError):
    """The journal cannot be read or written."""


class JournalStore(Protocol):
    """Lines of bytes, in the order in which they were appended."""

    place: str

    def content(self) -> bytes:
        """What was there when it was opened: whole lines only, each with its newline."""
        ...

    def append(self, line: bytes) -> None:
        """Append a line that ends with its only newline. Raises JournalError if this fails."""
        ...

    def close(self) -> None:
        """Close the journal, after writing the remaining lines if possible."""
        ...


class JournalFile:
    """A file of lines. Every line is one `write` of its own; a torn last line is cut off when it is opened.

    A line that the disk takes in part only is cut off again, and none is taken after it: what is read is always a
    beginning of what was appended.
    """

    def __init__(self, path: Path) -> None:
        self.place = str(path)
        self._failure: JournalError | None = None
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._descriptor = open_regular(path, os.O_RDWR | os.O_APPEND | os.O_CREAT)
        except OSError as error:
            raise JournalError("cannot open the journal", value=self.place, remedy=str(error)) from error
        try:
            with os.fdopen(os.dup(self._descriptor), "rb") as file:
                data = file.read()
            self._content = whole_lines(data)
            if len(self._content) < len(data):
                os.ftruncate(self._descriptor, len(self._content))
        except BaseException:
            os.close(self._descriptor)
            raise

    def content(self) -> bytes:
        """The whole lines that were there."""
        return self._content

    def append(self, line: bytes) -> None:
        """Write a line; raises JournalError from the first on that could not be written whole."""
        if self._failure is not None:
            raise self._failure
        whole_bytes = os.fstat(self._descriptor).st_size
        try:
            if os.write(self._descriptor, line) < len(line):
                raise OSError("a line was written in part only")
        except OSError as error:
            # Where even this fails, the torn line stays the last one, which the next attempt cuts off.
            with contextlib.suppress(OSError):
                os.ftruncate(self._descriptor, whole_bytes)
            remedy = f"{error}; free some space: the next attempt goes on from the last whole line"
            self._failure = JournalError("cannot write the journal", value=self.place, remedy=remedy)
            raise self._failure from error

    def close(self) -> None:
        """Close the file."""
        os.close(self._descriptor)


def whole_lines(data: bytes) -> bytes:
    """`data` up to its last newline: what comes after is a line that a death tore."""
    return data[: data.rfind(b"\n") + 1]
