"""Follows a file that grows: whole lines as they come, over truncation, rotation and absence."""

from __future__ import annotations

import os
from pathlib import Path

MAX_LINE_BYTES = 64 * 1024
MAX_POLL_BYTES = 4 * 1024 * 1024


class LogFollower:
    """Reads what was added to a file since the last `poll`.

    A poll without news costs two system calls. A file that was replaced is read to its end before the new one. A file
    that was cut short is read from its beginning; when it has grown beyond the old length by the next poll, nobody can
    see that it was cut. Lines longer than MAX_LINE_BYTES are dropped, as no log line is that long.

    Args:
        path: The file, which may come into being later.
        offset: Where to begin in it, in bytes; for a reader that comes back.
    """

    def __init__(self, path: Path, offset: int = 0) -> None:
        self._path = path
        self._offset = offset
        self._descriptor = -1
        self._partial = b""
        self._dropping = False

    @property
    def offset(self) -> int:
        """Bytes of the present file that were returned as whole lines, or dropped."""
        return self._offset - len(self._partial)

    def poll(self) -> list[bytes]:
        """Whole lines that were added, without their ends; at most about MAX_POLL_BYTES of them at once."""
        try:
            there = self._path.stat()
        except OSError:
            there = None
        if self._descriptor < 0 and (there is None or not self._open()):
            return []
        lines = self._read()
        present = os.fstat(self._descriptor)
        replaced = there is not None and (there.st_dev, there.st_ino) != (present.st_dev, present.st_ino)
        if replaced and self._offset >= present.st_size:
            lines += self.finish()
            self.close()
            self._offset = 0
            if self._open():
                lines += self._read()
        return lines

    def finish(self) -> list[bytes]:
        """The last line though it has no end, once its writer is gone; at most one."""
        rest, self._partial = self._partial, b""
        whole = [] if self._dropping or not rest else [rest]
        self._dropping = False
        return whole

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

    def _read(self) -> list[bytes]:
        """Read on, from the beginning when the file is shorter than what was read of it."""
        if os.fstat(self._descriptor).st_size < self._offset:
            self._offset, self._partial, self._dropping = 0, b"", False
        try:
            data = os.pread(self._descriptor, MAX_POLL_BYTES, self._offset)
        except OSError:
            return []
        self._offset += len(data)
        return self._split(data) if data else []

    def _split(self, data: bytes) -> list[bytes]:
        *whole, self._partial = (self._partial + data).split(b"\n")
        if whole and self._dropping:
            # The end of a line whose beginning was dropped.
            del whole[0]
            self._dropping = False
        if len(self._partial) > MAX_LINE_BYTES:
            self._partial, self._dropping = b"", True
        return [line for line in whole if len(line) <= MAX_LINE_BYTES]
