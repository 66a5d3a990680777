"""Data sets, the order in which tasks use their samples, and the digits.

The digits are read from the file in scikit-learn's package, without importing scikit-learn, which takes seconds.
Source: "Optical Recognition of Handwritten Digits", UCI repository, as shipped by scikit-learn: 1,797 grey images of
8 x 8 pixels with values 0 to 16, each with the digit that it shows.
"""

from __future__ import annotations

import gzip
import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from themis.errors import InputError
from themis.values import Value

SPLIT_SEED = 20
VALIDATION_SHARE = 0.15
TEST_SHARE = 0.15
SIDE = 8
CLASSES = 10

Inputs = NDArray[np.float32] | NDArray[np.int32]
Labels = NDArray[np.int32]


class Part(Value, frozen=True, kw_only=True):
    """One part of the data: n inputs with their labels, one label per input or one per position.

    Digits are images [n, 8, 8] with values 0 to 1 and labels [n]; text is characters [n, positions] and the characters
    that follow each.
    """

    inputs: Inputs
    labels: Labels


class DataSet(Value, frozen=True, kw_only=True):
    """The data, split in the same way for all runs, so that trials are comparable. `test` is for the final model."""

    train: Part
    validation: Part
    test: Part


def load_digits() -> DataSet:
    """Read and split the data set. Raises InputError if scikit-learn is not installed."""
    table = _table(_path())
    order = np.random.default_rng(SPLIT_SEED).permutation(len(table))
    held_out = round(len(table) * VALIDATION_SHARE), round(len(table) * TEST_SHARE)
    validation, test, train = np.split(order, np.cumsum(held_out))
    return DataSet(train=_part(table[train]), validation=_part(table[validation]), test=_part(table[test]))


def batch_indices(*, seed: int, iteration: int, batch_size: int, samples: int) -> NDArray[np.int64]:
    """Return the samples of iteration `iteration` (from 1): the next `batch_size` of an endless shuffled stream.

    Each pass over the data has its own permutation, which depends on the seed and the number of the pass only. So any
    number of tasks, after any number of restarts, agrees on every batch.
    """
    positions = np.arange((iteration - 1) * batch_size, iteration * batch_size)
    passes = positions // samples
    indices = np.empty(batch_size, dtype=np.int64)
    for number in np.unique(passes):
        order = np.random.default_rng((seed, int(number))).permutation(samples)
        chosen = passes == number
        indices[chosen] = order[positions[chosen] % samples]
    return indices


def task_rows(*, batch_size: int, task_index: int, tasks: int) -> slice:
    """Return this task's rows of a batch. Each row belongs to one task; shares differ by at most one row."""
    return slice(task_index * batch_size // tasks, (task_index + 1) * batch_size // tasks)


def _path() -> Path:
    """Return the path of the file in scikit-learn's package."""
    found = importlib.util.find_spec("sklearn")
    for folder in (found.submodule_search_locations or ()) if found else ():
        path = Path(folder) / "datasets" / "data" / "digits.csv.gz"
        if path.is_file():
            return path
    raise InputError("scikit-learn, which brings the digits, is not installed", remedy="install the extra 'tf'")


def _table(path: Path) -> NDArray[Any]:
    """Read the file as an array of shape [1797, 65]: 64 pixels and the label."""
    text = gzip.decompress(path.read_bytes()).decode()
    return np.array([row.split(",") for row in text.splitlines()], dtype=np.float32)


def _part(rows: NDArray[Any]) -> Part:
    images = (rows[:, :-1] / 16.0).reshape(-1, SIDE, SIDE).astype(np.float32)
    return Part(inputs=images, labels=rows[:, -1].astype(np.int32))
