"""CRC-32C (Castagnoli), as TensorFlow's record files have it: RFC 3720, appendix B.4, and TensorFlow's mask over it."""

from __future__ import annotations

_POLYNOMIAL = 0x82F63B78
_MASK_DELTA = 0xA282EAD8
_ALL_ONES = 0xFFFFFFFF


def _entry(byte: int) -> int:
    crc = byte
    for _ in range(8):
        crc = (crc >> 1) ^ _POLYNOMIAL if crc & 1 else crc >> 1
    return crc


_TABLE = tuple(map(_entry, range(256)))


def crc32c(data: bytes) -> int:
    """The checksum of the data. Ten million bytes a second or so: for short records."""
    crc = _ALL_ONES
    table = _TABLE
    for byte in data:
        crc = table[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    return crc ^ _ALL_ONES


def masked_crc32c(data: bytes) -> int:
    """The checksum as it is stored: rotated and shifted, since a checksum of checksums is weak."""
    crc = crc32c(data)
    return (((crc >> 15) | (crc << 17)) + _MASK_DELTA) & _ALL_ONES
