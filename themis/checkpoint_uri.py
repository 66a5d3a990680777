"""What a checkpoint URI may be: the name of the place where an app's checkpoints lie.

Standard library only, as the replay job imports it and has to start within milliseconds.
"""

from __future__ import annotations

from pathlib import Path

from themis.errors import InputError

KNOWN = "a plain path, file:///path, hdfs://nameservice-or-host[:port]/path, webhdfs://host:port/path"
SCHEMES = ("file", "hdfs", "webhdfs")
"""The schemes of a checkpoint URI; a plain path needs none."""


def check_checkpoint_uri(uri: str) -> None:
    """Check what an app names for its checkpoints; empty where it leaves the place to the ResourceManager.

    Raises:
        InputError: An unknown scheme, a file URI that names a host, or a relative path: its tasks run elsewhere. An
            HDFS URI without a path, or with a port that is none.
    """
    if "\0" in uri:
        raise InputError("a checkpoint URI with a NUL", value=uri, remedy=f"known: {KNOWN}")
    if not is_local(uri):
        _check_remote(uri)
    elif uri and not local_folder(uri).is_absolute():
        raise InputError("a checkpoint URI with a relative path", value=uri, remedy="give the whole path")


def _check_remote(uri: str) -> None:
    """What can be told of an HDFS URI without a look at Hadoop's configuration."""
    authority, _, path = uri.partition("://")[2].partition("/")
    port = authority.rpartition(":")[2] if ":" in authority and not authority.endswith("]") else "1"
    if not path.strip("/") or not (port.isdecimal() and 1 <= int(port[:6]) <= 65535):
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
