"""From a user's checkpoint URI to the store that serves it."""

from __future__ import annotations

from am.checkpoints.folder import FolderStore
from am.checkpoints.store import CheckpointArchive
from themis.checkpoint_uri import is_local, local_folder
from themis.errors import MissingHereError


def open_store(uri: str, *, wait_s: float | None = None) -> CheckpointArchive:
    """The store behind `uri`: a folder or an HDFS, where the root is made at the first save.

    Args:
        uri: A plain path, or a URI of one of `checkpoint_uri.SCHEMES`.
        wait_s: How long to wait for a store that is away, in seconds; by default as long as a task should.

    Raises:
        InputError: An empty URI, an unknown scheme, a file URI that names a host, or an HDFS that does not resolve.
        MissingHereError: An HDFS without the package for it or without what Hadoop's configuration should tell of it.
    """
    return FolderStore(local_folder(uri)) if is_local(uri) else _hdfs_store(uri, wait_s)


def _hdfs_store(uri: str, wait_s: float | None) -> CheckpointArchive:
    # Imported here: a task whose checkpoints lie in a folder needs neither the packages nor the time they take.
    try:
        from am.checkpoints.hdfs import open_hdfs_store
    except ModuleNotFoundError as error:
        if error.name not in ("hdfs", "requests"):
            raise
        raise MissingHereError(
            "HDFS needs the package `hdfs`", value=uri, remedy="pip install 'themis-scheduler[hdfs]'"
        ) from error
    return open_hdfs_store(uri, wait_s=wait_s)
