"""The framing of TensorFlow's record files, read as they grow.

A record is its length (8 bytes, little endian), the masked CRC-32C of these, the data, and the masked CRC-32C of it.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

from am.profiler.backlog import FIRST_BYTES, LAST_BYTES
from am.profiler.crc32c import masked_crc32c, masked_crc32cs

MAX_RECORD_BYTES = 64 * 1024
"""Longer records (graphs, images) are passed over without being kept."""

_HEAD = struct.Struct("<QI")
_FOOT = struct.Struct("<I")

_FRONT_BYTES = 64
"""So near its beginning an event has the tag of its first value."""


class Framed(NamedTuple):
    """The data of a record, and its checksum as the file has it."""

    data: bytes
    crc: int


def intact(records: Sequence[Framed]) -> list[Framed]:
    """Those whose data is what was written. To look at many at once is much quicker than one by one."""
    crcs = masked_crc32cs([record.data for record in records])
    return [record for record, crc in zip(records, crcs, strict=True) if record.crc == crc]


class RecordReader:
    """Cuts bytes into records. A record that is not whole yet waits for its rest.

    A length that does not fit its checksum leaves nobody knowing where the next record starts: the reader is `broken`
    and tells nothing more.

    Args:
        marks: Only records in which one of these stands are told; all, if there are none.
    """

    def __init__(self, marks: Sequence[bytes] = ()) -> None:
        self._marks = tuple(marks)
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

    def read_newest(self, data: bytes, ordinary: re.Pattern[bytes], needed: bytes) -> list[Framed]:
        """Of much that comes at once, if it begins with ordinary records, the last of them and all that follows.

        Args:
            data: As of `read`.
            ordinary: As many whole records in a row as may be left out.
            needed: What stands in records of which the last one must be read.
        """
        if self._skip or self.broken:
            return self.read(data)
        data, self._waiting = self._waiting + data, b""
        run = ordinary.match(data, 0, len(data) - LAST_BYTES)
        if run is None or run.end() <= FIRST_BYTES + LAST_BYTES or not _is_head(data, run.end()):
            return self.read(data)
        last = _last_with(data, needed)
        return self.read(data[run.end() if last is None else min(run.end(), last) :])

    def _cut(self, data: bytes, records: list[Framed]) -> int:
        """Fill in the records; returns where the first that is not whole starts."""
        at, end = 0, len(data)
        marked = iter(sorted(place for mark in self._marks for place in _places(data, mark)))
        place = next(marked, end)
        head_size, foot_size = _HEAD.size, _FOOT.size
        while at + head_size <= end:
            length, crc = _HEAD.unpack_from(data, at)
            if _length_crc(length) != crc:
                self.broken = True
                break
            start = at + head_size
            after = start + length + foot_size
            if length > MAX_RECORD_BYTES:
                self._skip = max(0, after - end)
                at = min(after, end)
                continue
            if after > end:
                break
            while place < start:
                place = next(marked, end)
            if place < start + length or not self._marks:
                records.append(Framed(data[start : start + length], _FOOT.unpack_from(data, start + length)[0]))
            at = after
        return at


def _last_with(data: bytes, needed: bytes) -> int | None:
    """Where the last whole record begins in whose first bytes this stands; None where there is none."""
    place = data.rfind(needed)
    while place >= 0:
        for at in range(place - _HEAD.size, max(-1, place - _FRONT_BYTES), -1):
            if _is_head(data, at) and at + _HEAD.size + _HEAD.unpack_from(data, at)[0] + _FOOT.size <= len(data):
                return at
        place = data.rfind(needed, 0, place)
    return None


def _is_head(data: bytes, at: int) -> bool:
    """Whether a record begins there."""
    length: int
    length, crc = _HEAD.unpack_from(data, at)
    return length <= MAX_RECORD_BYTES and bool(_length_crc(length) == crc)


def _places(data: bytes, mark: bytes) -> Iterator[int]:
    place = data.find(mark)
    while place >= 0:
        yield place
        place = data.find(mark, place + 1)


@lru_cache(maxsize=4096)
def _length_crc(length: int) -> int:
    return masked_crc32c(struct.pack("<Q", length))
