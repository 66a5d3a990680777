"""A shared folder on HDFS."""

from __future__ import annotations

import time
import uuid

from rm_plugin.engines.shared_folder import SharedFile
from themis.errors import UnreachableError
from themis.hadoop.webhdfs import WebHdfs
from themis.hadoop.webhdfs_errors import HdfsExistsError, HdfsMissingError


class HdfsFolder:
    """A SharedFolder on HDFS, over WebHDFS.

    Args:
        hdfs: The connection.
        path: The folder's path.
    """

    def __init__(self, hdfs: WebHdfs, path: str) -> None:
        self.place = path
        self._hdfs = hdfs

    def list(self) -> tuple[SharedFile, ...]:
        """Return the whole files, by name."""
        try:
            found = self._hdfs.list(self.place)
        except HdfsMissingError:
            # The folder above also holds what other users' containers read.
            self._hdfs.make_private_folder(self.place)
            return ()
        files = [status for status in found if not status.name.startswith(".")]
        return tuple(
            SharedFile(name=status.name, modified=status.modified_ms) for status in sorted(files, key=lambda s: s.name)
        )

    def read(self, name: str) -> bytes | None:
        """Return the content of a file, or None if it does not exist."""
        try:
            return self._hdfs.read_whole(f"{self.place}/{name}")
        except HdfsMissingError:
            return None

    def create(self, name: str, content: bytes) -> bool:
        """Create a whole file in one step: HDFS renames onto a free name for one process only."""
        half = f"{self.place}/.{uuid.uuid4().hex}"
        self._hdfs.create(half, lambda: content)
        try:
            self._hdfs.rename(half, f"{self.place}/{name}")
        except HdfsExistsError:
            self._hdfs.delete(half)
            return False
        except HdfsMissingError as error:
            raise UnreachableError("a new file was removed before it had its name", value=self.place) from error
        return True

    def touch(self, name: str) -> None:
        """Change the time of a file."""
        try:
            self._hdfs.touch(f"{self.place}/{name}", int(1000 * time.time()))
        except HdfsMissingError:
            return

    def delete(self, name: str) -> None:
        """Delete a file, if it exists."""
        self._hdfs.delete(f"{self.place}/{name}")

    def tidy(self) -> None:
        """Remove the halves of files whose creation was cut off."""
        for status in self._hdfs.list(self.place):
            if status.name.startswith("."):
                self._hdfs.delete(f"{self.place}/{status.name}")
