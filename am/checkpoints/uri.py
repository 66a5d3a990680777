"""Open the store for a user's checkpoint URI."""

from __future__ import annotations

from am.checkpoints.folder import FolderStore
from am.checkpoints.store import CheckpointArchive
from themis.checkpoint_uri import is_local, local_folder
from themis.errors import MissingHereError


def open_store(uri: str, *, wait_s: float | None = None) -> CheckpointArchive:
    """Return the store at `uri`, in a folder or on HDFS. The first save creates its root folder.

    Args:
        uri: A plain path, or a URI with one of `checkpoint_uri.SCHEMES`.
        wait_s: Seconds to wait for an unreachable store. By default as long as a task should wait.

    Raises:
        InputError: The URI is empty, has an unknown scheme, is a file URI with a host, or its HDFS does not resolve.
        MissingHereError: The package for HDFS, or a setting in Hadoop's configuration, is missing.
    """
    return FolderStore(local_folder(uri)) if is_local(uri) else _hdfs_store(uri, wait_s)


def _hdfs_store(uri: str, wait_s: float | None) -> CheckpointArchive:
    # Import on demand: a task with checkpoints in a folder does not need these packages, and starts faster.
    try:
        from am.checkpoints.hdfs import open_hdfs_store
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("hdfs", "requests"):
            raise
        raise MissingHereError(
            "HDFS needs the package `hdfs`", value=uri, remedy="pip install 'themis-scheduler[hdfs]'"
        ) from error
    return open_hdfs_store(uri, wait_s=wait_s)
