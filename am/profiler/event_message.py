"""TensorBoard's `Event` message, as far as scalars go, from its bytes (protocol buffers' wire format).

Fields by the public `event.proto`, `summary.proto` and `tensor.proto` of TensorFlow.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass

from themis.errors import InputError

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_WALL_TIME, _STEP, _SUMMARY = 1, 2, 5
_VALUE = 1
_TAG, _SIMPLE_VALUE, _TENSOR = 1, 2, 8
_DTYPE, _CONTENT, _FLOATS, _DOUBLES = 1, 4, 5, 6
_SIGN_BIT = 1 << 63

# How a scalar lies in `tensor_content`, by the number of its type: float, double, half.
_CONTENT_FORMS = {1: "<f", 2: "<d", 19: "<e"}

_DOUBLE, _SINGLE = struct.Struct("<d"), struct.Struct("<f")

_Field = int | bytes

# How nearly all events begin: a time, a step unless it is 0, and a summary of one value, up to the length of its tag.
_NUMBER = rb"[\x80-\xff]{0,8}[\x00-\x7f]"
_FRONT = re.compile(
    rb"\x09(.{8})(?:\x10(" + _NUMBER + rb"))?\x2a(" + _NUMBER + rb")\x0a(" + _NUMBER + rb")\x0a([\x00-\x7f])", re.DOTALL
)
# What then follows the tag: a simple value; or a tensor of one float, and the name of a plugin.
_FLOAT = re.compile(rb"\x15(.{4})|\x42\x0a\x08\x01\x12\x00\x22\x04(.{4})(?:\x4a([\x00-\x7f])(.*))?", re.DOTALL)


# Records of one scalar each, by any tag, that is neither infinite nor none: its exponent is not all ones.
_FINITE = rb"..(?:[\x00-\x7f].|.[^\x7f\xff])"
ORDINARY_RECORDS = re.compile(
    rb"(?:.{4}\x00{4}.{4}\x09.{8}(?:\x10" + _NUMBER + rb")?\x2a[\x00-\x7f]\x0a[\x00-\x7f]\x0a[\x00-\x7f][ -~]{1,100}?"
    rb"(?:\x15"
    + _FINITE
    + rb"|\x42\x0a\x08\x01\x12\x00\x22\x04"
    + _FINITE
    + rb"(?:\x4a\x0b\x0a\x09\x0a\x07scalars|(?!\x4a)))"
    rb".{4})++",
    re.DOTALL,
)
"""Framed records, as many as there are in a row, by TensorFlow's record format and `Event`."""


class EventError(InputError):
    """Bytes that are no event."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """The scalars that were written together, by tag, in order. Seconds since the epoch by the writer's clock."""

    step: int
    wall_time_s: float
    scalars: tuple[tuple[str, float], ...]


def read_event(data: bytes) -> Event:
    """The event; values that are no scalars are left out. Raises EventError for anything else."""
    return _usual(data) or _any(data)


def tag_field(tag: str) -> bytes:
    """What stands in the bytes of every value with such a tag of fewer than 128 bytes."""
    name = tag.encode()
    return bytes((_TAG << 3 | _BYTES, len(name))) + name


def _usual(data: bytes) -> Event | None:
    """An event of one scalar in the forms that TensorFlow writes, at a fifth of what `_any` takes; None for others."""
    front = _FRONT.match(data)
    if front is None:
        return None
    wall_time, step, summary, value, tag_length = front.groups()
    tag_end = front.end() + tag_length[0]
    scalar = _FLOAT.fullmatch(data, tag_end)
    if scalar is None or (scalar[3] is not None and scalar[3][0] != len(scalar[4])):
        return None
    # Either reaches to the end, if it is the only one.
    if front.end(3) + _read(summary) != len(data) or front.end(4) + _read(value) != len(data):
        return None
    return Event(
        step=0 if step is None else _read(step),
        wall_time_s=_DOUBLE.unpack(wall_time)[0],
        scalars=((data[front.end() : tag_end].decode("utf-8", "replace"), _SINGLE.unpack(scalar[1] or scalar[2])[0]),),
    )


def _read(number: bytes) -> int:
    """A varint by itself."""
    return number[0] if len(number) == 1 else _varint(number, 0)[0]


def _any(data: bytes) -> Event:
    """An event field by field."""
    step, wall_time_s = 0, 0.0
    scalars: list[tuple[str, float]] = []
    try:
        for number, value in _fields(data):
            if number == _WALL_TIME and isinstance(value, bytes):
                (wall_time_s,) = struct.unpack("<d", value)
            elif number == _STEP and isinstance(value, int):
                step = value
            elif number == _SUMMARY and isinstance(value, bytes):
                scalars += _summary(value)
    except (struct.error, IndexError) as error:
        raise EventError("an event does not parse", value=data[:40]) from error
    if step >= _SIGN_BIT:
        raise EventError("an event has a negative step", value=step)
    return Event(step=step, wall_time_s=wall_time_s, scalars=tuple(scalars))


def _summary(data: bytes) -> Iterator[tuple[str, float]]:
    for number, value in _fields(data):
        if number == _VALUE and isinstance(value, bytes):
            yield from _value(value)


def _value(data: bytes) -> Iterator[tuple[str, float]]:
    """The tag and the scalar of one value, if it is one."""
    tag, scalar = "", None
    for number, value in _fields(data):
        if not isinstance(value, bytes):
            continue
        if number == _TAG:
            tag = value.decode("utf-8", "replace")
        elif number == _SIMPLE_VALUE:
            (scalar,) = struct.unpack("<f", value)
        elif number == _TENSOR:
            scalar = _tensor(value)
    if scalar is not None:
        yield tag, scalar


def _tensor(data: bytes) -> float | None:
    """The one number in a tensor, None when it holds something else."""
    dtype, content = 0, b""
    scalar: float | None = None
    for number, value in _fields(data):
        if number == _DTYPE and isinstance(value, int):
            dtype = value
        elif not isinstance(value, bytes):
            continue
        elif number == _CONTENT:
            content = value
        elif number == _FLOATS:
            scalar = _only("<f", value)
        elif number == _DOUBLES:
            scalar = _only("<d", value)
    if scalar is None and dtype in _CONTENT_FORMS:
        scalar = _only(_CONTENT_FORMS[dtype], content)
    return scalar


def _only(form: str, data: bytes) -> float | None:
    """The number, None when there are none or several."""
    return float(struct.unpack(form, data)[0]) if len(data) == struct.calcsize(form) else None


def _fields(data: bytes) -> Iterator[tuple[int, _Field]]:
    """Number and value of every field: a whole number for varints, the bytes of any other."""
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        kind = key & 7
        if kind == _VARINT:
            value, at = _varint(data, at)
            yield key >> 3, value
            continue
        if kind == _BYTES:
            length, at = _varint(data, at)
        elif kind in (_FIXED64, _FIXED32):
            length = 8 if kind == _FIXED64 else 4
        else:
            raise EventError("an event has a field of an unknown kind", value=kind)
        if at + length > len(data):
            raise EventError("an event ends in the midst of a field", value=data[:40])
        yield key >> 3, data[at : at + length]
        at += length


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """A varint, and where the next thing starts."""
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
        if shift > 63:
            raise EventError("an event has a number of more than 64 bits", value=data[:40])
