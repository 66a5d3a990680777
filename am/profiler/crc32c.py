"""CRC-32C (Castagnoli) with TensorFlow's mask, as record files use it. Source: RFC 3720, appendix B.4.

Without the first and last complement, a CRC is linear. The CRC of a text is the exclusive or of the CRCs of its bytes,
each followed by as many zeros as bytes follow it. So NumPy can look up many bytes at once, and leading zeros are
neutral.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice

import numpy as np
import numpy.typing as npt

Words = npt.NDArray[np.uint32]
Bytes = npt.NDArray[np.uint8]

_POLYNOMIAL = 0x82F63B78
_MASK_DELTA = 0xA282EAD8
_ALL_ONES = 0xFFFFFFFF

_BLOCK_BYTES = 64
"""Bytes per block. Each place in a block has its own table. Blocks are then combined in pairs."""

_MAX_LOOPED_BYTES = 512
"""Up to this number of bytes, a plain loop is faster than NumPy."""

_MAX_BATCH_BYTES = 256 * 1024
"""Bytes per NumPy batch, which takes 12 times their space."""


def _entry(byte: int) -> int:
    crc = byte
    for _ in range(8):
        crc = (crc >> 1) ^ _POLYNOMIAL if crc & 1 else crc >> 1
    return crc


_TABLE = tuple(map(_entry, range(256)))


def masked_crc32c(data: bytes) -> int:
    """Return the checksum as files store it: rotated and offset, because a checksum of checksums is weak."""
    return masked_crc32cs((data,))[0]


def crc32c(data: bytes) -> int:
    """Return the checksum of the data."""
    return crc32cs((data,))[0]


def masked_crc32cs(parts: Sequence[bytes]) -> list[int]:
    """Return the checksums of several texts as files store them. This is much faster than one call per text."""
    return [(((crc >> 15) | (crc << 17)) + _MASK_DELTA) & _ALL_ONES for crc in crc32cs(parts)]


def crc32cs(parts: Sequence[bytes]) -> list[int]:
    """Return the checksums of several texts."""
    if sum(map(len, parts)) <= _MAX_LOOPED_BYTES:
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
        while some := list(islice(left, max(1, _MAX_BATCH_BYTES // width))):
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
    """Return the smallest size of at least `length` bytes that is a power of two of blocks, in bytes."""
    blocks = -(-length // _BLOCK_BYTES)
    return int(_BLOCK_BYTES << (blocks - 1).bit_length())


def _of_rows(parts: list[bytes], width: int) -> Iterator[int]:
    """Return the checksums of parts of at least four and at most `width` bytes."""
    rows = np.frombuffer(bytearray().join(part.rjust(width, b"\0") for part in parts), np.uint8).reshape(-1, width)
    starts = np.array([width - len(part) for part in parts])
    # Starting with a register of ones is the same as complementing the first four bytes.
    rows[np.arange(len(parts))[:, None], starts[:, None] + np.arange(4)] ^= 0xFF
    return (crc ^ _ALL_ONES for crc in _linear(rows).tolist())


def _linear(rows: Bytes) -> Words:
    """Return the CRC of each row without the complements."""
    looked_up = _BY_PLACE.reshape(-1)[rows.reshape(-1, _BLOCK_BYTES) + 256 * np.arange(_BLOCK_BYTES)]
    crcs = np.bitwise_xor.reduce(looked_up, axis=1).reshape(len(rows), -1)
    zeros = _BY_PLACE[:4]
    while crcs.shape[1] > 1:
        crcs = _followed(crcs[:, 0::2], zeros) ^ crcs[:, 1::2]
        # Twice as many zero bytes have the same effect as the zero bytes applied to their own tables.
        zeros = _followed(zeros, zeros)
    result: Words = crcs[:, 0]
    return result


def _followed(crcs: Words, zeros: Words) -> Words:
    """Return the CRCs after some more zero bytes. `zeros` has the CRC that each byte of a CRC becomes by them."""
    by_byte = [zeros[place][(crcs >> (8 * place)) & 0xFF] for place in range(4)]
    result: Words = by_byte[0] ^ by_byte[1] ^ by_byte[2] ^ by_byte[3]
    return result


def _crcs_by_place() -> Words:
    table = np.array(_TABLE, np.uint32)
    places = [table]
    for _ in range(_BLOCK_BYTES - 1):
        places.append(table[places[-1] & 0xFF] ^ (places[-1] >> 8))
    return np.array(places[::-1])


_BY_PLACE = _crcs_by_place()
"""The CRC of a block that is zero except for one byte, by its place (axis 0) and value (axis 1)."""
