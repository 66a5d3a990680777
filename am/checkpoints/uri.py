"""From a user's checkpoint URI to the store that serves it."""

from __future__ import annotations

from pathlib import Path

from am.checkpoints.folder import FolderStore
from am.checkpoints.store import CheckpointArchive
from themis.errors import InputError, MissingHereError

KNOWN = "a plain path, file:///path, hdfs://nameservice-or-host[:port]/path, webhdfs://host:port/path"
SCHEMES = ("file", "hdfs", "webhdfs")
"""The schemes of a checkpoint URI; a plain path needs none."""


def open_store(uri: str, *, wait_s: float | None = None) -> CheckpointArchive:
    """The store behind `uri`: a folder or an HDFS, where the root is made at the first save.

    Args:
        uri: A plain path, or a URI of one of SCHEMES.
        wait_s: How long to wait for a store that is away, in seconds; by default as long as a task should.

    Raises:
        InputError: An empty URI, an unknown scheme, a file URI that names a host, or an HDFS that does not resolve.
        MissingHereError: An HDFS without the package for it or without what Hadoop's configuration should tell of it.
    """
    return FolderStore(local_folder(uri)) if is_local(uri) else _hdfs_store(uri, wait_s)


def is_local(uri: str) -> bool:
    """Whether `uri` would have to name a local folder; it may still name none."""
    scheme, separator, _ = uri.partition("://")
    return not separator or scheme.lower() not in ("hdfs", "webhdfs")


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


def local_folder(uri: str) -> Path:
    """The local folder that `uri` names; raises InputError where it names none."""
    scheme, separator, rest = uri.partition("://")
    if not separator:
        if not uri:
            raise InputError("an empty checkpoint URI", value=uri, remedy=f"known: {KNOWN}")
        return Path(uri)
    if not is_local(uri):
        raise InputError("this has to be a local folder", value=uri, remedy="write a plain path or file:///path")
    if scheme.lower() != "file":
        raise InputError("unknown scheme in a checkpoint URI", value=uri, remedy=f"known: {KNOWN}")
    host, slash, path = rest.partition("/")
    if host not in ("", "localhost") or not slash:
        raise InputError("a file URI must name a local absolute path", value=uri, remedy="write file:///path")
    if "%" in path:
        # Imported here because it is rare and slow next to the start-up of the replay job.
        from urllib.parse import unquote

        path = unquote(path)
    return Path("/" + path)
