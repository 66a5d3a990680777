"""What a checkpoint URI may be: the name of the place where an app's checkpoints lie.

Standard library only, as the replay job imports it and has to start within milliseconds.
"""

from __future__ import annotations

import re
from pathlib import Path

from themis.errors import InputError

KNOWN = "a plain path, file:///path, hdfs://nameservice-or-host[:port]/path, webhdfs://host:port/path"
SCHEMES = ("file", "hdfs", "webhdfs")
"""The schemes of a checkpoint URI; a plain path needs none."""

_AUTHORITY = (
    r"([^\s@:/\[\]]+@)?([^\s@:/\[\]]+|\[[0-9a-fA-F:.]+\])"
    r"(:0*([1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5]))?"
)
"""A user, a host or the name of a service, a port."""


def check_checkpoint_uri(uri: str) -> None:
    """Check what an app names for its checkpoints; empty where it leaves the place to the ResourceManager.

    Raises:
        InputError: An unknown scheme, a file URI that names a host, or a relative path: its tasks run elsewhere. An
            HDFS URI without a path, or with a port that is none.
    """
    # In a plain path % stands for itself.
    if "\0" in uri or ("://" in uri and "%00" in uri):
        raise InputError("a checkpoint URI with a NUL", value=uri, remedy=f"known: {KNOWN}")
    if not is_local(uri):
        _check_remote(uri)
    elif uri and not local_folder(uri).is_absolute():
        raise InputError("a checkpoint URI with a relative path", value=uri, remedy="give the whole path")


def _check_remote(uri: str) -> None:
    """Check an HDFS URI as far as possible without Hadoop's configuration."""
    scheme, _, rest = uri.partition("://")
    authority, _, path = rest.partition("/")
    parts = [part for part in path.split("/") if part]
    # hdfs:///path is of the file system that Hadoop's configuration names.
    valid = re.fullmatch(_AUTHORITY, authority) if authority or scheme.lower() == "webhdfs" else True
    if not valid or not parts or any(part in (".", "..") or "#LATEST" in part for part in parts):
        raise InputError("not an HDFS URI that names a folder", value=uri, remedy=f"known: {KNOWN}")


def is_local(uri: str) -> bool:
    """Whether `uri` would have to name a local folder; it may still name none."""
    scheme, separator, _ = uri.partition("://")
    return not separator or scheme.lower() not in ("hdfs", "webhdfs")


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
