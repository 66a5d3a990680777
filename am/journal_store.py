"""Where a journal's lines are kept: a port for what is only appended to, and the adapter for a local file."""

from __future__ import annotations

import contextlib
import errno
import logging
import os
from pathlib import Path
from typing import NoReturn, Protocol

from themis.errors import ThemisError
from themis.files import open_regular

LOG = logging.getLogger("themis.am.journal")

MAX_WAITING_BYTES = 1024 * 1024
"""An app of a hundred jobs writes a few hundred bytes per second, so this lasts for most of an hour."""

_FULL = frozenset((errno.ENOSPC, errno.EDQUOT, errno.EFBIG))


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


class EmptyJournal:
    """The lines of an app that has not begun: none, and none are kept."""

    place = "nowhere"

    def content(self) -> bytes:
        """Nothing."""
        return b""

    def append(self, line: bytes) -> None:
        """Drop the line."""

    def close(self) -> None:
        """Do nothing."""


class JournalFile:
    """A file of lines. Every line is one `write` of its own; a torn last line is cut off when it is opened.

    A line that the disk takes in part only is cut off again. While the disk is full, lines wait in memory, in their
    order. So training goes on, and what is read is always a beginning of what was appended. If the app master dies
    meanwhile, the next attempt goes on from the lines before.
    """

    def __init__(self, path: Path) -> None:
        self.place = str(path)
        self._failure: JournalError | None = None
        self._waiting = b""
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
        """Write a line, or keep it until the disk has room again.

        Raises:
            JournalError: It cannot be written for another reason, or too many lines wait; then and from then on.
        """
        if self._failure is not None:
            raise self._failure
        is_first = not self._waiting
        self._waiting += line
        self._write()
        if self._waiting and is_first:
            LOG.warning("%s: the disk is full, lines of the journal wait in memory", self.place)
        if len(self._waiting) > MAX_WAITING_BYTES:
            self._fail("too many lines wait for space on the disk")

    def close(self) -> None:
        """Close the file. Lines that wait are lost if the disk is still full."""
        if self._failure is None:
            with contextlib.suppress(JournalError):
                self._write()
        os.close(self._descriptor)

    def _write(self) -> None:
        """Write the lines that wait, all or none."""
        whole_bytes = os.fstat(self._descriptor).st_size
        try:
            if os.write(self._descriptor, self._waiting) == len(self._waiting):
                self._waiting = b""
                return
        except OSError as error:
            if error.errno not in _FULL:
                self._fail(str(error))
        try:
            # The disk took a part.
            os.ftruncate(self._descriptor, whole_bytes)
        except OSError as error:
            # The torn line stays the last one, which the next attempt cuts off.
            self._fail(str(error))

    def _fail(self, reason: str) -> NoReturn:
        remedy = f"{reason}; free some space: the next attempt goes on from the last whole line"
        self._failure = JournalError("cannot write the journal", value=self.place, remedy=remedy)
        raise self._failure


def whole_lines(data: bytes) -> bytes:
    """`data` up to its last newline: what comes after is a line that a death tore."""
    return data[: data.rfind(b"\n") + 1]
