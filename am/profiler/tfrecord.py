"""Read the records of a growing TensorFlow record file.

A record is a length (8 bytes, little endian), the masked CRC-32C of these bytes, the data, and the data's masked
CRC-32C.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

from am.profiler.backlog_limits import KEPT_FIRST_BYTES, KEPT_LAST_BYTES
from am.profiler.crc32c import masked_crc32c, masked_crc32cs

MAX_RECORD_BYTES = 64 * 1024
"""Longer records (graphs, images) are skipped without being kept in memory."""

_HEAD = struct.Struct("<QI")
_FOOT = struct.Struct("<I")

_FRONT_BYTES = 64
"""The tag of an event's first value begins within this number of bytes."""


class Framed(NamedTuple):
    """The data of a record, and the checksum in the file."""

    data: bytes
    crc: int


def intact(records: Sequence[Framed]) -> list[Framed]:
    """Return the records with a correct checksum. One call for many records is much faster than one call each."""
    crcs = masked_crc32cs([record.data for record in records])
    return [record for record, crc in zip(records, crcs, strict=True) if record.crc == crc]


class RecordReader:
    """Splits bytes into records. An incomplete record is kept until the rest arrives.

    If a length has a wrong checksum, the start of the next record is unknown. The reader is then `broken` and returns
    no more records.

    Args:
        marks: Return only records that contain one of these. Without marks, return all records.
    """

    def __init__(self, marks: Sequence[bytes] = ()) -> None:
        self._marks = tuple(marks)
        self._waiting = b""
        self._skip = 0
        self.broken = False
        # Records have few lengths, and a checksum in Python is slow.
        self._length_crc = lru_cache(maxsize=4096)(_length_crc)

    def read(self, data: bytes) -> list[Framed]:
        """Return the records that are now complete."""
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
        """Read a backlog. If it begins with ordinary records, skip all but the last of them.

        Args:
            data: See `read`.
            ordinary: A pattern that matches as many complete skippable records in a row as possible.
            needed: Do not skip the last record that contains this.
        """
        if self._skip or self.broken:
            return self.read(data)
        data, self._waiting = self._waiting + data, b""
        run = ordinary.match(data, 0, len(data) - KEPT_LAST_BYTES)
        if run is None or run.end() <= KEPT_FIRST_BYTES + KEPT_LAST_BYTES or not self._is_head(data, run.end()):
            return self.read(data)
        last = self._last_with(data, needed)
        return self.read(data[run.end() if last is None else min(run.end(), last) :])

    def _cut(self, data: bytes, records: list[Framed]) -> int:
        """Append the complete records to `records`, and return where the first incomplete one starts."""
        at, end = 0, len(data)
        marked = iter(sorted(place for mark in self._marks for place in _places(data, mark)))
        place = next(marked, end)
        head_size, foot_size = _HEAD.size, _FOOT.size
        while at + head_size <= end:
            length, crc = _HEAD.unpack_from(data, at)
            if self._length_crc(length) != crc:
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

    def _last_with(self, data: bytes, needed: bytes) -> int | None:
        """Return where the last complete record with `needed` in its first bytes begins, or None if there is none."""
        data_end = len(data) - _FOOT.size
        place = data.rfind(needed)
        while place >= 0:
            for at in range(place - _HEAD.size, max(-1, place - _FRONT_BYTES), -1):
                if self._is_head(data, at) and at + _HEAD.size + _HEAD.unpack_from(data, at)[0] <= data_end:
                    return at
            place = data.rfind(needed, 0, place)
        return None

    def _is_head(self, data: bytes, at: int) -> bool:
        """Whether a record begins at `at`."""
        length: int
        length, crc = _HEAD.unpack_from(data, at)
        return length <= MAX_RECORD_BYTES and bool(self._length_crc(length) == crc)


def _places(data: bytes, mark: bytes) -> Iterator[int]:
    place = data.find(mark)
    while place >= 0:
        yield place
        place = data.find(mark, place + 1)


def _length_crc(length: int) -> int:
    return masked_crc32c(struct.pack("<Q", length))
