"""From a user's checkpoint URI to the store that serves it."""

from __future__ import annotations

from pathlib import Path

from am.checkpoints.folder import FolderStore
from am.checkpoints.store import CheckpointStore
from themis.errors import InputError

KNOWN = "a plain path, file:///path"


def open_store(uri: str) -> CheckpointStore:
    """The store behind `uri`: a plain path or a `file://` URI is a folder, made at the first save.

    Raises:
        InputError: An empty URI, an unknown scheme, or a file URI that names a host.
    """
    return FolderStore(local_folder(uri))


def local_folder(uri: str) -> Path:
    """The local folder that `uri` names; raises InputError where it names none."""
    scheme, separator, rest = uri.partition("://")
    if not separator:
        if not uri:
            raise InputError("an empty checkpoint URI", value=uri, remedy=f"known: {KNOWN}")
        return Path(uri)
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
