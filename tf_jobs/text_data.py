"""A text to learn character by character: the Apache License 2.0, 11 KB of English, which is in the package.

A sample is CONTEXT characters. Its labels are the characters that follow each of them. Samples overlap, so that there
are enough of them.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tf_jobs.data import DataSet, Part

CONTEXT = 32
STRIDE = 5
HELD_OUT_SHARE = 0.1
"""Share of the text for validation; the same share is for the final test."""

_PATH = Path(__file__).parent / "tables" / "text.txt"


@cache
def alphabet() -> str:
    """Return the characters of the text, ordered by code point. A character's number is its index here."""
    return "".join(sorted(set(_text())))


def load_text() -> DataSet:
    """Read and split the text. No two parts share a character of it."""
    numbers = np.searchsorted(np.array(list(alphabet())), np.array(list(_text()))).astype(np.int32)
    held_out = round(len(numbers) * HELD_OUT_SHARE)
    train, validation, test = np.split(numbers, [len(numbers) - 2 * held_out, len(numbers) - held_out])
    return DataSet(train=_samples(train), validation=_samples(validation), test=_samples(test))


def _text() -> str:
    """Return the text, with each run of white space as one space."""
    return " ".join(_PATH.read_text(encoding="ascii").split())


def _samples(numbers: NDArray[np.int32]) -> Part:
    windows = np.lib.stride_tricks.sliding_window_view(numbers, CONTEXT + 1)[::STRIDE]
    return Part(inputs=windows[:, :-1].copy(), labels=windows[:, 1:].copy())
