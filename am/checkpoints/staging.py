"""Stage the files of a checkpoint in a folder: they stay hidden until all are complete and verified."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from am.checkpoints.store import Checkpoint, FileRecord


@contextmanager
def staged_files(checkpoint: Checkpoint, into: Path) -> Iterator[tuple[tuple[FileRecord, Path], ...]]:
    """Yield a hidden path for each file of a checkpoint. The block writes and verifies the files.

    If the block succeeds, all files get their final names in `into`. Otherwise the staged files are removed.

    Example: for the file `model.keras` and process 41, the block writes `into/.model.keras.partial-41`. At the end it
    becomes `into/model.keras`.
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
