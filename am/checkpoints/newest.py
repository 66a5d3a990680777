"""The search for the newest whole checkpoint beside a writer that adds and prunes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar

from am.checkpoints.store import BrokenCheckpointError, Checkpoint, CheckpointStore, MissingCheckpointError

LIST_ATTEMPTS = 5

Folder = TypeVar("Folder")


def newest_whole(
    newest_first: Callable[[], Iterable[Folder]],
    whole: Callable[[Folder], Checkpoint | None],
    there: Callable[[Folder], bool],
) -> Checkpoint | None:
    """The newest checkpoint that `whole` accepts, or None.

    Args:
        newest_first: Lists the candidates.
        whole: The checkpoint in a folder, None where it is not whole or not there.
        there: Whether a folder is still there.
    """
    for _attempt in range(LIST_ATTEMPTS):
        vanished = False
        for folder in newest_first():
            checkpoint = whole(folder)
            if checkpoint is not None:
                return checkpoint
            vanished = vanished or not there(folder)
        if not vanished:
            return None
        # A writer pruned what was listed, so newer ones exist: list again.
    return None


def is_fetched(store: CheckpointStore, checkpoint: Checkpoint, into: Path) -> bool:
    """Fetch a checkpoint into `into`; False, and nothing is there, where it is broken or gone."""
    try:
        store.fetch(checkpoint, into)
    except (BrokenCheckpointError, MissingCheckpointError):
        return False
    return True
