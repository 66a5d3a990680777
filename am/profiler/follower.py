"""Follows files that grow: what was added as it comes, over truncation, rotation and absence."""

from __future__ import annotations

import os
from enum import Enum
from pathlib import Path
from typing import NamedTuple

MAX_LINE_BYTES = 64 * 1024
MAX_POLL_BYTES = 4 * 1024 * 1024

_REMEMBERED_BYTES = 64
_LINE_END = b"\n"
_REDRAW = b"\r"


class Start(Enum):
    """How a part of a file stands to what was read before it."""

    GOES_ON = "goes on"
    CUT = "the file was cut short and is read from its beginning"
    REPLACED = "another file has taken the place of the one before, which was read to its end"


class Part(NamedTuple):
    """Bytes of a file, in order."""

    data: bytes
    start: Start = Start.GOES_ON


class FileFollower:
    """Reads what was added to a file since the last `poll`.

    A poll without news costs three system calls. A file that was replaced is read to its end before the new one. A file
    that was cut short is read from its beginning: it is shorter than what was read of it, or the bytes before the place
    where reading goes on are no longer the same. Only one that was written anew with the same bytes there, or to the
    very same length, is taken for one that goes on.

    `offset` is how far the present file was read, in bytes; `behind` whether the last poll brought as much as one may,
    so that there may be more.

    Args:
        path: The file, which may come into being later.
        offset: Where to begin in it, in bytes; for a reader that comes back.
    """

    def __init__(self, path: Path, offset: int = 0) -> None:
        self._path = path
        self.offset = offset
        self.behind = False
        self._before = b""
        self._descriptor = -1

    def poll(self) -> list[Part]:
        """What was added; at most about MAX_POLL_BYTES of it at once."""
        try:
            there = self._path.stat()
        except OSError:
            there = None
        self.behind = False
        if self._descriptor < 0 and (there is None or not self._open()):
            return []
        parts = self._read()
        present = os.fstat(self._descriptor)
        replaced = there is not None and (there.st_dev, there.st_ino) != (present.st_dev, present.st_ino)
        if replaced and self.offset >= present.st_size:
            self.close()
            self.offset, self._before = 0, b""
            if self._open():
                parts += [Part(b"", Start.REPLACED), *self._read()]
        self.behind = any(len(part.data) >= MAX_POLL_BYTES for part in parts)
        return parts

    def close(self) -> None:
        """Close the file; `poll` opens it again where it was."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _open(self) -> bool:
        try:
            self._descriptor = os.open(self._path, os.O_RDONLY | os.O_NONBLOCK)
        except OSError:
            return False
        return True

    def _read(self) -> list[Part]:
        """Read on, or from the beginning when the file was cut."""
        size = os.fstat(self._descriptor).st_size
        if size == self.offset:
            return []
        try:
            if size > self.offset:
                known = len(self._before)
                data = os.pread(self._descriptor, MAX_POLL_BYTES + known, self.offset - known)
                if data.startswith(self._before):
                    return self._took(data[known:], Start.GOES_ON)
            self.offset, self._before = 0, b""
            return self._took(os.pread(self._descriptor, MAX_POLL_BYTES, 0), Start.CUT)
        except OSError:
            return []

    def _took(self, data: bytes, start: Start) -> list[Part]:
        self.offset += len(data)
        self._before = (self._before + data[-_REMEMBERED_BYTES:])[-_REMEMBERED_BYTES:]
        return [Part(data, start)]


class LogFollower:
    """Reads the whole lines that were added to a log since the last `read`.

    A carriage return ends a line too, as bars are drawn anew behind one for as long as their line lasts. Lines of which
    more than MAX_LINE_BYTES come without an end are dropped, as no log line is that long.

    Args:
        path: The file, which may come into being later.
        offset: Where to begin in it, in bytes; for a reader that comes back.
    """

    def __init__(self, path: Path, offset: int = 0) -> None:
        self._file = FileFollower(path, offset)
        self._partial = b""
        self._dropping = False

    @property
    def offset(self) -> int:
        """Bytes of the present file that were returned as whole lines, or dropped."""
        return self._file.offset - len(self._partial)

    @property
    def behind(self) -> bool:
        """Whether the last read brought as much as one may, so that there may be more."""
        return self._file.behind

    def read(self) -> bytes:
        """Whole lines that were added, with their ends; at most about MAX_POLL_BYTES of them at once."""
        return b"".join(self._lines(part) for part in self._file.poll())

    def finish(self) -> bytes:
        """The last line though it had no end, once its writer is gone; empty when there is none."""
        rest, self._partial = self._partial, b""
        whole = rest + _LINE_END if rest and not self._dropping else b""
        self._dropping = False
        return whole

    def close(self) -> None:
        """Close the file; `read` opens it again where it was."""
        self._file.close()

    def _lines(self, part: Part) -> bytes:
        before = b""
        if part.start is Start.REPLACED:
            before = self.finish()
        elif part.start is Start.CUT:
            self._partial, self._dropping = b"", False
        return before + self._whole(part.data)

    def _whole(self, data: bytes) -> bytes:
        """The lines that end in this data; what follows the last end waits."""
        last = data.rfind(_LINE_END)
        end = max(last, data.rfind(_REDRAW, last + 1)) + 1
        lines = self._partial + data[:end] if end else b""
        if lines and self._dropping:
            # The end of a line whose beginning was dropped.
            lines = data[_first_end(data) + 1 : end]
            self._dropping = False
        self._partial = data[end:] if end else self._partial + data
        if len(self._partial) > MAX_LINE_BYTES:
            self._partial, self._dropping = b"", True
        return lines


def _first_end(data: bytes) -> int:
    return min(place for place in (data.find(_LINE_END), data.find(_REDRAW)) if place >= 0)
