"""Deliver Themis's packages to the nodes: one archive on HDFS, named by its content, which NodeManagers unpack."""

from __future__ import annotations

import hashlib
import importlib.util
import io
import py_compile
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

from themis.errors import InputError
from themis.hadoop.values import LocalResource, ResourceKind, Visibility
from themis.hadoop.webhdfs import open_webhdfs
from themis.hadoop.webhdfs_retry import RetryRule

PACKAGE_FOLDER = "themis-package"
ENV_FOLDER = "env"

PACKAGES = ("themis", "am", "tf_jobs")
"""Packages that app masters and tasks import. The nodes' interpreter must have their dependencies."""

_ROOT = Path(__file__).resolve().parents[2]
AT_START = RetryRule(deadline_s=15.0)
"""At the start, calls to an unreachable HDFS fail after this time, so that the log says so. The caller tries again."""
_EPOCH = (1980, 1, 1, 0, 0, 0)


def ship_package(folder_uri: str) -> LocalResource:
    """Upload the archive to a folder on HDFS unless it exists, and return its resource for NodeManagers."""
    name = f"themis-{package_digest()[:16]}.zip"
    hdfs, folder = open_webhdfs(folder_uri, rule=AT_START)
    path = f"{folder}/{name}"
    if hdfs.status(path) is None:
        content = package_bytes()
        # Upload under another name first, so that NodeManagers never see an incomplete archive.
        partial = f"{folder}/.{name}.partial"
        hdfs.make_folders(folder)
        hdfs.create(partial, lambda: content)
        hdfs.rename(partial, path, overwrite=True)
    return _resource(PACKAGE_FOLDER, f"{folder_uri}/{name}")


def archive_resource(uri: str) -> LocalResource:
    """Return the site's own archive on HDFS, unpacked as `env`. Raises InputError if it does not exist."""
    return _resource(ENV_FOLDER, uri)


def package_digest() -> str:
    """Hex SHA-256 of the files and of what they are compiled for: what the archive's name is made of."""
    digest = hashlib.sha256(str(sys.implementation.cache_tag).encode())
    for path in _files():
        content = path.read_bytes()
        digest.update(f"\n{path.relative_to(_ROOT).as_posix()} {len(content)}\n".encode())
        digest.update(content)
    return digest.hexdigest()


def package_bytes() -> bytes:
    """The archive: the files, and the modules compiled, since otherwise every container would compile them."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive, tempfile.TemporaryDirectory() as scratch:
        for path in _files():
            name = path.relative_to(_ROOT).as_posix()
            _add(archive, name, path.read_bytes())
            if path.suffix == ".py":
                _add(archive, importlib.util.cache_from_source(name), _compiled(path, Path(scratch)))
    return buffer.getvalue()


def _compiled(path: Path, scratch: Path) -> bytes:
    # Unchecked: what a NodeManager unpacks has other times than what was compiled.
    mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
    compiled = py_compile.compile(str(path), str(scratch / "module.pyc"), path.name, True, invalidation_mode=mode)
    return Path(str(compiled)).read_bytes()


def _add(archive: zipfile.ZipFile, name: str, content: bytes) -> None:
    entry = zipfile.ZipInfo(name, _EPOCH)
    entry.external_attr = 0o644 << 16
    entry.compress_type = zipfile.ZIP_DEFLATED
    archive.writestr(entry, content)


def _files() -> Iterator[Path]:
    for package in PACKAGES:
        for path in sorted((_ROOT / package).rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                yield path


def _resource(name: str, uri: str) -> LocalResource:
    hdfs, path = open_webhdfs(uri, rule=AT_START)
    status = hdfs.status(path)
    if status is None:
        raise InputError("no such archive on HDFS", value=uri, remedy="put it there, or correct yarn.archive")
    return LocalResource(
        name=name,
        uri=uri,
        kind=ResourceKind.ARCHIVE,
        size_bytes=status.size_bytes,
        modified_ms=status.modified_ms,
        # Unpacked once on a node for all apps of one user, not once an app.
        visibility=Visibility.PRIVATE,
    )
