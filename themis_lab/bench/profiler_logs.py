"""Random logs for the profiler's benchmark: each format alone, and among the lines of other software."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Iterator
from enum import StrEnum
from itertools import count

from am.profiler.crc32c import masked_crc32c
from themis.values import Value

EVERY_LINES = 20
"""In a mixed log, one line in this many is a record."""

HISTOGRAM_BYTES = 1500
GRAPH_BYTES = 1_000_000


class Kind(StrEnum):
    """The content of a log. With `among`, one line in EVERY_LINES is a record, and the others are unrelated."""

    NOISE = "noise"
    ESTIMATOR_AMONG = "estimator-among"
    BARS = "keras-bars"
    LINES_AMONG = "keras-lines-among"
    CNN_AMONG = "cnn-benchmarks-among"
    MIXED = "mixed-among"
    EVENTS_AMONG = "events-among"
    ESTIMATOR = "estimator"
    LINES = "keras-lines"
    CNN = "cnn-benchmarks"
    EVENTS = "events"


class Source(Value, frozen=True, kw_only=True):
    """How a log's bytes are made: records in parts, and whether unrelated lines are between them."""

    parts: Callable[[random.Random], Iterator[bytes]]
    among: bool = False
    events: bool = False


def write(kind: Kind, seed: int, size_bytes: int) -> bytes:
    """A log of about `size_bytes` bytes."""
    source = SOURCES[kind]
    rng = random.Random(seed)
    others = _others(rng)
    parts = source.parts(rng)
    written: list[bytes] = []
    left = size_bytes
    while left > 0:
        part = next(parts)
        if source.among:
            lines = part.count(b"\n")
            part += b"".join(next(others) for _ in range(lines * (EVERY_LINES - 1)))
        written.append(part)
        left -= len(part)
    return b"".join(written)


def _others(rng: random.Random) -> Iterator[bytes]:
    """Lines without information for the profiler."""
    forms = (
        b"2026-07-28 12:00:01.%06d: I tensorflow/core/platform/cpu_feature_guard.cc:210] This TensorFlow binary is"
        b" optimized to use available CPU instructions in performance-critical operations.\n",
        b"[data] shard %05d of 1024 read in 0.213 s, 1293 examples, cache hit 0.93\n",
        b"DEBUG:root:batch %d lr 0.00100 grad_norm 1.234 examples 64 of 50000 in queue\n",
        b"WARNING:tensorflow:It seems that global step (tf.train.get_global_step) has not been increased: %d.\n",
        b'  File "/opt/train/input.py", line %d, in next_batch\n',
        b"%d images skipped\n",
        b"\n%.0d",
    )
    while True:
        yield rng.choice(forms) % rng.randrange(1, 99_999)


def _estimator(rng: random.Random) -> Iterator[bytes]:
    for step in count(20, 20):
        seconds = rng.uniform(1.9, 2.1)
        yield b"INFO:tensorflow:global_step/sec: %.6g\nINFO:tensorflow:loss = %.7g, step = %d (%.3f sec)\n" % (
            20 / seconds, 2.0 / step, step, seconds,
        )  # fmt: skip


def _bars(rng: random.Random) -> Iterator[bytes]:
    """Keras 3 progress bars: 500 steps per epoch, drawn twenty times a second at 10 ms per step."""
    total = 500
    for epoch in count(1):
        drawings = [b"Epoch %d/1000000\n" % epoch]
        for done in (*range(1, total, 5), total):
            full, pace_ms = 20 * done // total, rng.uniform(9.0, 11.0)
            bar = "━" * full, "━" * (20 - full)
            text = (
                f"\r\x1b[1m{done:3d}/{total}\x1b[0m \x1b[32m{bar[0]}\x1b[0m\x1b[37m{bar[1]}\x1b[0m \x1b[1m3s\x1b[0m"
                f" {pace_ms:.0f}ms/step - accuracy: 0.9219 - loss: {1 / epoch:.4f}"
            )
            drawings.append((text + ("\b" * 74 if done < total else "\n")).encode())
        yield b"".join(drawings)


def _lines(rng: random.Random) -> Iterator[bytes]:
    for epoch in count(1):
        yield (
            b"Epoch %d/1000000\n125/125 - 3s - %dms/step - accuracy: 0.9219 - loss: %.4f - val_accuracy: 0.9"
            b" - val_loss: 0.3059\n" % (epoch, rng.randrange(22, 27), 1 / epoch)
        )


def _cnn(rng: random.Random) -> Iterator[bytes]:
    yield b"Batch size:  64 global\n"
    for step in count(10, 10):
        yield b"%d\timages/sec: %.1f +/- 0.3 (jitter = 0.4)\t%.3f\n" % (step, rng.uniform(100, 105), 8.0 / step)


def _mixed(rng: random.Random) -> Iterator[bytes]:
    sources = [_estimator(rng), _lines(rng), _cnn(rng)]
    while True:
        yield next(rng.choice(sources))


def _noise(rng: random.Random) -> Iterator[bytes]:
    yield from _others(rng)


def _losses(rng: random.Random) -> Iterator[bytes]:
    for step in count(1):
        yield _framed(_event(step, _value("loss", rng.random())))


def _board(rng: random.Random) -> Iterator[bytes]:
    """A graph, then for each tenth step a loss among other scalars and a histogram."""
    yield _framed(_field(4, bytes(GRAPH_BYTES)))
    histogram = _field(1, _field(1, b"weights") + _field(5, bytes(HISTOGRAM_BYTES)))
    for step in count(10, 10):
        values = (_value("loss", rng.random()), _value("learning_rate", 0.1), _value("grad_norm", 1.0), histogram)
        yield b"".join(_framed(_event(step, value)) for value in values)


def _event(step: int, value: bytes) -> bytes:
    return b"\x09" + struct.pack("<d", 1e9 + step / 10) + b"\x10" + _varint(step) + _field(5, value)


def _value(tag: str, number: float) -> bytes:
    return _field(1, _field(1, tag.encode()) + b"\x15" + struct.pack("<f", number))


def _field(number: int, data: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(data)) + data


def _varint(value: int) -> bytes:
    data = bytearray()
    while value > 0x7F:
        data.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes((*data, value))


def _framed(data: bytes) -> bytes:
    head = struct.pack("<Q", len(data))
    # The checksums of long records are not checked.
    crc = masked_crc32c(data) if len(data) < HISTOGRAM_BYTES else 0
    return head + struct.pack("<I", masked_crc32c(head)) + data + struct.pack("<I", crc)


SOURCES: dict[Kind, Source] = {
    Kind.NOISE: Source(parts=_noise),
    Kind.ESTIMATOR_AMONG: Source(parts=_estimator, among=True),
    Kind.BARS: Source(parts=_bars),
    Kind.LINES_AMONG: Source(parts=_lines, among=True),
    Kind.CNN_AMONG: Source(parts=_cnn, among=True),
    Kind.MIXED: Source(parts=_mixed, among=True),
    Kind.EVENTS_AMONG: Source(parts=_board, events=True),
    Kind.ESTIMATOR: Source(parts=_estimator),
    Kind.LINES: Source(parts=_lines),
    Kind.CNN: Source(parts=_cnn),
    Kind.EVENTS: Source(parts=_losses, events=True),
}
