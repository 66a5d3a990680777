"""Find the newest complete checkpoint while a writer may add and prune checkpoints."""

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
    """Return the newest checkpoint that `whole` accepts, or None.

    Args:
        newest_first: Lists the candidates.
        whole: Returns the checkpoint in a folder, or None if it is incomplete or gone.
        there: Whether a folder still exists.
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
        # A writer pruned a listed folder, so newer ones exist: list again.
    return None


def is_fetched(store: CheckpointStore, checkpoint: Checkpoint, into: Path) -> bool:
    """Fetch a checkpoint into `into`. Returns False, and leaves no file there, if it is broken or gone."""
    try:
        store.fetch(checkpoint, into)
    except (BrokenCheckpointError, MissingCheckpointError):
        return False
    return True
