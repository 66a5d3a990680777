"""The framing of TensorFlow's record files, read as they grow.

A record is its length (8 bytes, little endian), the masked CRC-32C of these, the data, and the masked CRC-32C of it.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import NamedTuple

from am.profiler.crc32c import masked_crc32c

MAX_RECORD_BYTES = 64 * 1024
"""Longer records (graphs, images) are passed over without being kept."""

_HEAD = struct.Struct("<QI")
_FOOT = struct.Struct("<I")


class Framed(NamedTuple):
    """The data of a record, and its checksum as the file has it."""

    data: bytes
    crc: int

    @property
    def intact(self) -> bool:
        """Whether the data is what was written."""
        return masked_crc32c(self.data) == self.crc


class RecordReader:
    """Cuts bytes into records. A record that is not whole yet waits for its rest.

    A length that does not fit its checksum leaves nobody knowing where the next record starts: the reader is `broken`
    and tells nothing more.
    """

    def __init__(self) -> None:
        self._waiting = b""
        self._skip = 0
        self.broken = False

    def read(self, data: bytes) -> list[Framed]:
        """The records that have become whole."""
        if self._skip:
            passed = min(self._skip, len(data))
            self._skip -= passed
            data = data[passed:]
        if self.broken or not data:
            return []
        data = self._waiting + data
        records: list[Framed] = []
        at = self._cut(data, records)
        self._waiting = b"" if self.broken else data[at:]
        return records

    def _cut(self, data: bytes, records: list[Framed]) -> int:
        """Fill in the records; returns where the first that is not whole starts."""
        at, end = 0, len(data)
        while at + _HEAD.size <= end:
            length, crc = _HEAD.unpack_from(data, at)
            if _length_crc(length) != crc:
                self.broken = True
                break
            start = at + _HEAD.size
            after = start + length + _FOOT.size
            if length > MAX_RECORD_BYTES:
                self._skip = max(0, after - end)
                at = min(after, end)
                continue
            if after > end:
                break
            records.append(Framed(data[start : start + length], _FOOT.unpack_from(data, start + length)[0]))
            at = after
        return at


@lru_cache(maxsize=4096)
def _length_crc(length: int) -> int:
    return masked_crc32c(struct.pack("<Q", length))
