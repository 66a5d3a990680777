"""Our own packages on their way to the nodes: one archive on HDFS, named by its content, unpacked by NodeManagers."""

from __future__ import annotations

import hashlib
import io
import zipfile
from collections.abc import Iterator
from pathlib import Path

from hadoop.values import LocalResource, ResourceKind
from hadoop.webhdfs import open_webhdfs
from themis.errors import InputError

PACKAGE_FOLDER = "themis-package"
ENV_FOLDER = "env"

PACKAGES = ("themis", "am", "tf_jobs", "hadoop")
"""What app masters and tasks import. What they need of others has to be in the interpreter on the nodes."""

_ROOT = Path(__file__).resolve().parents[2]
_EPOCH = (1980, 1, 1, 0, 0, 0)


def ship_package(folder_uri: str) -> LocalResource:
    """Have the archive in a folder on HDFS, and what a NodeManager must be told of it."""
    content = package_bytes()
    name = f"themis-{hashlib.sha256(content).hexdigest()[:16]}.zip"
    hdfs, folder = open_webhdfs(folder_uri)
    path = f"{folder}/{name}"
    if (status := hdfs.status(path)) is None or status.size_bytes != len(content):
        # Beside its name first: a NodeManager must never see half of it.
        partial = f"{folder}/.{name}.partial"
        hdfs.make_folders(folder)
        hdfs.create(partial, lambda: content)
        hdfs.rename(partial, path, overwrite=True)
    return _resource(PACKAGE_FOLDER, f"{folder_uri}/{name}")


def archive_resource(uri: str) -> LocalResource:
    """An archive that the site put on HDFS, unpacked as `env`; one that is not there raises InputError."""
    return _resource(ENV_FOLDER, uri)


def package_bytes() -> bytes:
    """The archive: the same bytes for the same files, whoever makes it and when."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in _files():
            entry = zipfile.ZipInfo(path.relative_to(_ROOT).as_posix(), _EPOCH)
            entry.external_attr = 0o644 << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, path.read_bytes())
    return buffer.getvalue()


def _files() -> Iterator[Path]:
    for package in PACKAGES:
        for path in sorted((_ROOT / package).rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                yield path


def _resource(name: str, uri: str) -> LocalResource:
    hdfs, path = open_webhdfs(uri)
    status = hdfs.status(path)
    if status is None:
        raise InputError("no such archive on HDFS", value=uri, remedy="put it there, or correct yarn.archive")
    return LocalResource(
        name=name,
        uri=uri,
        kind=ResourceKind.ARCHIVE,
        size_bytes=status.size_bytes,
        modified_ms=status.modified_ms,
    )
