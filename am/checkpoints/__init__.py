"""Complete, verified checkpoints of jobs: one port, and adapters for folders, HDFS and memory."""

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
