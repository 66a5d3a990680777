"""CRC-32C (Castagnoli), as TensorFlow's record files have it: RFC 3720, appendix B.4, and TensorFlow's mask over it.

Without its first and last complement a CRC is linear: that of a whole is the exclusive or of those of its bytes, each
followed by as many zeros as bytes follow it. So many bytes are looked up at once, and zeros in front change nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from itertools import islice

import numpy as np
import numpy.typing as npt

Words = npt.NDArray[np.uint32]
Bytes = npt.NDArray[np.uint8]

_POLYNOMIAL = 0x82F63B78
_MASK_DELTA = 0xA282EAD8
_ALL_ONES = 0xFFFFFFFF

_BLOCK_BYTES = 64
"""Bytes that are looked up in tables of their own place; blocks of them are joined in pairs."""

_FEW_BYTES = 512
"""So few are looked up one by one: arrays would cost more."""

_MOST_BYTES = 256 * 1024
"""So many are looked up at once, which takes 12 times their space."""


def _entry(byte: int) -> int:
    crc = byte
    for _ in range(8):
        crc = (crc >> 1) ^ _POLYNOMIAL if crc & 1 else crc >> 1
    return crc


_TABLE = tuple(map(_entry, range(256)))


def masked_crc32c(data: bytes) -> int:
    """The checksum as it is stored: rotated and shifted, since a checksum of checksums is weak."""
    return masked_crc32cs((data,))[0]


def crc32c(data: bytes) -> int:
    """The checksum of the data."""
    return crc32cs((data,))[0]


def masked_crc32cs(parts: Sequence[bytes]) -> list[int]:
    """The checksums of many, as they are stored; much quicker than one by one."""
    return [(((crc >> 15) | (crc << 17)) + _MASK_DELTA) & _ALL_ONES for crc in crc32cs(parts)]


def crc32cs(parts: Sequence[bytes]) -> list[int]:
    """The checksums of many."""
    if sum(map(len, parts)) <= _FEW_BYTES:
        return [_one_by_one(part) for part in parts]
    crcs = [0] * len(parts)
    by_width: dict[int, list[int]] = {}
    for place, part in enumerate(parts):
        if len(part) < 4:
            crcs[place] = _one_by_one(part)
        else:
            by_width.setdefault(_width(len(part)), []).append(place)
    for width, places in by_width.items():
        left = iter(places)
        while some := list(islice(left, max(1, _MOST_BYTES // width))):
            for place, crc in zip(some, _of_rows([parts[each] for each in some], width), strict=True):
                crcs[place] = crc
    return crcs


def _one_by_one(data: bytes) -> int:
    crc = _ALL_ONES
    table = _TABLE
    for byte in data:
        crc = table[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    return crc ^ _ALL_ONES


def _width(length: int) -> int:
    """The least power of two of blocks that holds so many bytes, in bytes."""
    blocks = -(-length // _BLOCK_BYTES)
    return int(_BLOCK_BYTES << (blocks - 1).bit_length())


def _of_rows(parts: list[bytes], width: int) -> Iterator[int]:
    """The checksums of parts of four bytes or more, none of which is longer than the width."""
    rows = np.frombuffer(bytearray().join(part.rjust(width, b"\0") for part in parts), np.uint8).reshape(-1, width)
    starts = np.array([width - len(part) for part in parts])
    # A register that begins with ones has the first four bytes complemented.
    rows[np.arange(len(parts))[:, None], starts[:, None] + np.arange(4)] ^= 0xFF
    return (crc ^ _ALL_ONES for crc in _linear(rows).tolist())


def _linear(rows: Bytes) -> Words:
    """The CRC of each row without the complements."""
    looked_up = _by_place().reshape(-1)[rows.reshape(-1, _BLOCK_BYTES) + 256 * np.arange(_BLOCK_BYTES)]
    crcs = np.bitwise_xor.reduce(looked_up, axis=1).reshape(len(rows), -1)
    size = _BLOCK_BYTES
    while crcs.shape[1] > 1:
        crcs = _followed(crcs[:, 0::2], size) ^ crcs[:, 1::2]
        size *= 2
    result: Words = crcs[:, 0]
    return result


@cache
def _by_place() -> Words:
    """The CRC of each byte value (second axis) at each place of a block (first axis) that is zero but for it."""
    table = np.array(_TABLE, np.uint32)
    places = [table]
    for _ in range(_BLOCK_BYTES - 1):
        places.append(table[places[-1] & 0xFF] ^ (places[-1] >> 8))
    return np.array(places[::-1])


@cache
def _zeros(count: int) -> Words:
    """Tables for `_followed`: what each byte of a CRC becomes when a block's bytes, or so many more, are zero."""
    if count == _BLOCK_BYTES:
        return _by_place()[:4]
    return _followed(_zeros(count // 2), count // 2)


def _followed(crcs: Words, zeros: int) -> Words:
    """What the CRCs become when so many zero bytes follow: a power of two of blocks."""
    tables = _zeros(zeros)
    by_byte = [tables[place][(crcs >> (8 * place)) & 0xFF] for place in range(4)]
    result: Words = by_byte[0] ^ by_byte[1] ^ by_byte[2] ^ by_byte[3]
    return result
