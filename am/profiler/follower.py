"""Follow growing files. This handles files that are truncated, rotated, capped or not there yet."""

from __future__ import annotations

import os
from enum import Enum
from pathlib import Path
from typing import NamedTuple

from themis.capped_files import first_kept

MAX_LINE_BYTES = 64 * 1024
MAX_POLL_BYTES = 4 * 1024 * 1024

_REMEMBERED_BYTES = 64
_LINE_END = b"\n"
_REDRAW = b"\r"


class Start(Enum):
    """How a part of a file relates to the part before it."""

    GOES_ON = "goes on"
    CUT = "the file was cut short and is read from its beginning"
    REPLACED = "another file has taken the place of the one before, which was read to its end"
    SKIPPED = "the bytes in between were given back, because the file has a cap"


class Part(NamedTuple):
    """Bytes of a file, and how they relate to the bytes before them."""

    data: bytes
    start: Start = Start.GOES_ON


class FileFollower:
    """Reads the bytes that were added to a file since the last `poll`.

    A poll without new bytes costs three system calls. If another file replaced the file, the follower reads the old one
    to its end first. If the file was truncated, the follower reads it from its beginning. It detects a truncation if
    the file is shorter than the offset, or if the bytes before the offset have changed. It misses one if the file was
    rewritten with the same bytes there, or to exactly the same length. It skips bytes that a cap took away
    (`themis.capped_files`).

    Attributes:
        offset: Bytes of the present file that were read.
        behind: Whether the last poll returned its maximum, so that there may be more.

    Args:
        path: The file, which need not exist yet.
        offset: Where to begin, in bytes, for a reader that continues.
    """

    def __init__(self, path: Path, offset: int = 0) -> None:
        self._path = path
        self.offset = offset
        self.behind = False
        self._before = b""
        self._descriptor = -1

    def poll(self) -> list[Part]:
        """Return the added bytes, at most about MAX_POLL_BYTES per call."""
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
        """Close the file. `poll` reopens it at the same offset."""
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
        """Read from the offset, or from the beginning if the file was truncated. Skip what a cap took away."""
        size = os.fstat(self._descriptor).st_size
        if size == self.offset:
            return []
        try:
            if size > self.offset:
                start = Start.GOES_ON
                if (kept := first_kept(self._descriptor, self.offset)) > self.offset:
                    self.offset, self._before, start = kept, b"", Start.SKIPPED
                known = len(self._before)
                data = os.pread(self._descriptor, MAX_POLL_BYTES + known, self.offset - known)
                if data.startswith(self._before):
                    return self._took(data[known:], start)
            self.offset, self._before = first_kept(self._descriptor, 0), b""
            return self._took(os.pread(self._descriptor, MAX_POLL_BYTES, self.offset), Start.CUT)
        except OSError:
            return []

    def _took(self, data: bytes, start: Start) -> list[Part]:
        self.offset += len(data)
        self._before = (self._before + data[-_REMEMBERED_BYTES:])[-_REMEMBERED_BYTES:]
        return [Part(data, start)]


class LogFollower:
    """Reads the complete lines that were added to a log since the last `read`.

    A carriage return ends a line too, because progress bars are redrawn after one. Lines of more than MAX_LINE_BYTES
    are dropped, because no log line is that long.

    Args:
        path: The file, which need not exist yet.
        offset: Where to begin, in bytes, for a reader that continues.
    """

    def __init__(self, path: Path, offset: int = 0) -> None:
        self._file = FileFollower(path, offset)
        self._partial = b""
        self._dropping = False

    @property
    def offset(self) -> int:
        """Bytes of the present file that were returned as complete lines, or dropped."""
        return self._file.offset - len(self._partial)

    @property
    def behind(self) -> bool:
        """Whether the last read returned its maximum, so that there may be more."""
        return self._file.behind

    def read(self) -> bytes:
        """Return the added complete lines with their ends, at most about MAX_POLL_BYTES per call."""
        return b"".join(self._lines(part) for part in self._file.poll())

    def finish(self) -> bytes:
        """Return the last line if it has no line end, for a writer that has ended. Empty if there is none."""
        rest, self._partial = self._partial, b""
        whole = rest + _LINE_END if rest and not self._dropping else b""
        self._dropping = False
        return whole

    def close(self) -> None:
        """Close the file. `read` reopens it at the same offset."""
        self._file.close()

    def _lines(self, part: Part) -> bytes:
        before = b""
        if part.start is Start.REPLACED:
            before = self.finish()
        elif part.start is Start.CUT:
            self._partial, self._dropping = b"", False
        elif part.start is Start.SKIPPED:
            # What is kept begins within a line.
            self._partial, self._dropping = b"", True
        return before + self._whole(part.data)

    def _whole(self, data: bytes) -> bytes:
        """Return the lines that end in this data. Text after the last end is kept for the next call."""
        last = data.rfind(_LINE_END)
        end = max(last, data.rfind(_REDRAW, last + 1)) + 1
        lines = self._partial + data[:end] if end else b""
        if lines and self._dropping:
            # Drop the rest of a line whose beginning was dropped.
            first = min(place for place in (data.find(_LINE_END), data.find(_REDRAW)) if place >= 0)
            lines = data[first + 1 : end]
            self._dropping = False
        self._partial = data[end:] if end else self._partial + data
        if len(self._partial) > MAX_LINE_BYTES:
            self._partial, self._dropping = b"", True
        return lines
