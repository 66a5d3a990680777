"""Upload a local file to HDFS in parts, so that a broken connection costs one part and not the whole file.

Each part is a separate file, and HDFS joins them in one step at the end (CONCAT). Appending to one file could not be
repeated safely: if the reply is lost, the retry would append twice. Also, after the death of a DataNode a file stays
locked for a minute (HDFS's soft lease limit), while a part can be written again at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from am.checkpoints.digest import ConcurrentDigest
from am.checkpoints.manifest import CHUNK_BYTES
from am.checkpoints.store import FileRecord
from themis.hadoop.webhdfs import WebHdfs
from themis.hadoop.webhdfs_errors import HdfsRefusedError

PART_BYTES = 128 << 20
"""The default block size of HDFS. Joined parts of this size leave no short blocks inside a file."""
JOIN_AT_ONCE = 50
"""Maximum number of parts that one request joins, because their paths are in its URL."""


def upload(hdfs: WebHdfs, source: Path, target: str, *, part_bytes: int = PART_BYTES) -> FileRecord:
    """Upload a local file to `target`, replacing an existing file, and return the record of the content.

    Args:
        hdfs: The HDFS. Its retry rule applies to each part separately.
        source: The local file.
        target: Path on HDFS. Parts are temporary files `.<name>.<number>` next to it.
        part_bytes: Size of a part.
    """
    with source.open("rb") as stream, ConcurrentDigest() as digest:
        parts = _Parts(hdfs, stream, target, part_bytes, digest)
        while parts.write_next():
            pass
        parts.join()
        return FileRecord(name=target.rpartition("/")[2], size_bytes=sum(parts.sizes), sha256=digest.hexdigest())


class _Parts:
    def __init__(self, hdfs: WebHdfs, stream: BinaryIO, target: str, part_bytes: int, digest: ConcurrentDigest) -> None:
        self.sizes: list[int] = []
        self._digest = digest
        self._hdfs = hdfs
        self._stream = stream
        self._target = target
        self._part_bytes = part_bytes

    def write_next(self) -> bool:
        """Write the next part. Returns False if none is left."""
        start = sum(self.sizes)
        path = self._path(len(self.sizes))
        so_far = self._digest.state()
        if self.sizes and not self._more(start):
            return False
        size = 0

        def pieces() -> Iterator[bytes]:
            nonlocal size
            size = 0
            # Each attempt starts at the part's beginning, with the digest of the earlier parts.
            self._digest.go_back(so_far)
            for piece in self._pieces(start, self._part_bytes):
                self._digest.update(piece)
                size += len(piece)
                yield piece

        self._hdfs.create(path, pieces)
        self.sizes.append(size)
        return size == self._part_bytes

    def join(self) -> None:
        """Join the parts to one file."""
        joined = self.sizes[0]
        for first in range(1, len(self.sizes), JOIN_AT_ONCE):
            numbers = range(first, min(first + JOIN_AT_ONCE, len(self.sizes)))
            joined += sum(self.sizes[number] for number in numbers)
            try:
                self._hdfs.concat(self._target, [self._path(number) for number in numbers], joined)
            except HdfsRefusedError:
                # HDFS cannot join files in an encryption zone.
                self._write_in_one()
                return

    def _write_in_one(self) -> None:
        whole = sum(self.sizes)
        self._hdfs.create(self._target, lambda: self._pieces(0, whole))
        for number in range(1, len(self.sizes)):
            self._hdfs.delete(self._path(number))

    def _path(self, number: int) -> str:
        if number == 0:
            return self._target
        folder, _, name = self._target.rpartition("/")
        return f"{folder}/.{name}.{number:05d}"

    def _more(self, start: int) -> bool:
        self._stream.seek(start)
        return bool(self._stream.read(1))

    def _pieces(self, start: int, length: int) -> Iterator[bytes]:
        self._stream.seek(start)
        while length > 0 and (piece := self._stream.read(min(CHUNK_BYTES, length))):
            length -= len(piece)
            yield piece
