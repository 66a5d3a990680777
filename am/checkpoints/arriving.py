"""Files of a checkpoint on their way into a folder: hidden until all are there and verified."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from am.checkpoints.store import Checkpoint, FileRecord


@contextmanager
def arriving(checkpoint: Checkpoint, into: Path) -> Iterator[tuple[tuple[FileRecord, Path], ...]]:
    """A hidden path for each file of a checkpoint, which the block writes and verifies.

    All get their names in `into` when the block ends well; otherwise whatever it wrote is removed.
    """
    into.mkdir(parents=True, exist_ok=True)
    files = tuple((record, into / f".{record.name}.partial-{os.getpid()}") for record in checkpoint.files)
    try:
        yield files
        for record, partial in files:
            partial.rename(into / record.name)
    finally:
        for _, partial in files:
            partial.unlink(missing_ok=True)
