"""The archive of an app's logs on HDFS."""

from __future__ import annotations

import posixpath

from themis.hadoop.webhdfs import open_webhdfs


class HdfsArchiveStore:
    """An ArchiveStore that is one file, replaced by renaming."""

    def __init__(self, uri: str) -> None:
        self._hdfs, self._path = open_webhdfs(uri)

    def put(self, content: bytes) -> None:
        """Write it beside the old one, then rename."""
        partial = posixpath.join(posixpath.dirname(self._path), f".{posixpath.basename(self._path)}.partial")
        self._hdfs.create(partial, lambda: content, is_private=True)
        self._hdfs.rename(partial, self._path, overwrite=True)

    def get(self) -> bytes | None:
        """The file's content."""
        return None if self._hdfs.status(self._path) is None else self._hdfs.read_whole(self._path)
