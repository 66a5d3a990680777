"""Whole, verified checkpoints of jobs: one port, a folder adapter and an in-memory adapter."""

from am.checkpoints.store import (
    BrokenCheckpointError,
    Checkpoint,
    CheckpointError,
    CheckpointStore,
    FileRecord,
    MissingCheckpointError,
)
from am.checkpoints.uri import open_store

__all__ = [
    "BrokenCheckpointError",
    "Checkpoint",
    "CheckpointError",
    "CheckpointStore",
    "FileRecord",
    "MissingCheckpointError",
    "open_store",
]
