"""The SharedFolder port: small files that several ResourceManagers share, on a file system or on HDFS."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol, TypeVar

from themis.errors import UnreachableError
from themis.values import Value

T = TypeVar("T")


class SharedFile(Value, frozen=True, kw_only=True):
    """A file. `modified` changes at each `touch`; compare it with other values of the same file only."""

    name: str
    modified: int


class SharedFolder(Protocol):
    """Files of one folder, which it creates if it is missing. Its methods block.

    Every method raises UnreachableError while the file system does not answer.
    """

    place: str
    """The folder's path or URI, for messages."""

    def list(self) -> tuple[SharedFile, ...]:
        """Return the whole files, by name."""
        ...

    def read(self, name: str) -> bytes | None:
        """Return the content of a file, or None if it does not exist."""
        ...

    def create(self, name: str, content: bytes) -> bool:
        """Create a whole file in one step. Returns False if a file of this name exists; that file stays as it is.

        After an UnreachableError the file may exist or not. If the first reply is lost, False may also mean that this
        call created the file.
        """
        ...

    def touch(self, name: str) -> None:
        """Change the time of a file. Does nothing if it does not exist."""
        ...

    def delete(self, name: str) -> None:
        """Delete a file, if it exists."""
        ...

    def tidy(self) -> None:
        """Remove what creations left that were cut off. A creation that is under way fails."""
        ...


class FileSystemFolder:
    """A folder of a file system: a local one, or one of a file server such as NFS."""

    def __init__(self, path: Path) -> None:
        self.place = str(path)
        self._path = path

    def list(self) -> tuple[SharedFile, ...]:
        """Return the whole files, by name."""
        with _reachable(self.place):
            self._path.mkdir(parents=True, exist_ok=True)
            names = sorted(name for name in os.listdir(self._path) if not name.startswith("."))  # noqa: PTH208
            return tuple([file for name in names if (file := self._status(name)) is not None])

    def read(self, name: str) -> bytes | None:
        """Return the content of a file, or None if it does not exist."""
        with _reachable(self.place):
            return _unless_missing(lambda: (self._path / name).read_bytes())

    def create(self, name: str, content: bytes) -> bool:
        """Create a whole file in one step, by a hard link, which no file system makes over a file that exists."""
        half = self._path / f".{uuid.uuid4().hex}"
        with _reachable(self.place):
            self._path.mkdir(parents=True, exist_ok=True)
            try:
                with half.open("xb") as file:
                    file.write(content)
                    file.flush()
                    os.fsync(file.fileno())
                try:
                    (self._path / name).hardlink_to(half)
                except FileExistsError:
                    return False
                return True
            finally:
                half.unlink(missing_ok=True)

    def touch(self, name: str) -> None:
        """Change the time of a file."""
        with _reachable(self.place):
            _unless_missing(lambda: os.utime(self._path / name))

    def delete(self, name: str) -> None:
        """Delete a file, if it exists."""
        with _reachable(self.place):
            (self._path / name).unlink(missing_ok=True)

    def tidy(self) -> None:
        """Remove the halves of files whose creation was cut off."""
        with _reachable(self.place):
            for half in self._path.glob(".*"):
                half.unlink(missing_ok=True)

    def _status(self, name: str) -> SharedFile | None:
        def look() -> SharedFile:
            # NFS asks the server for the time of a file that is opened; `stat` alone may return an older one.
            with (self._path / name).open("rb") as file:
                return SharedFile(name=name, modified=os.fstat(file.fileno()).st_mtime_ns)

        return _unless_missing(look)


def shared_by_files(path: Path | None) -> SharedFolder | None:
    """Return the part of a folder that is for ResourceManagers, None without a folder."""
    return None if path is None else FileSystemFolder(path.absolute() / "resource-manager")


def _unless_missing(work: Callable[[], T]) -> T | None:
    try:
        return work()
    except FileNotFoundError:
        return None


@contextmanager
def _reachable(place: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise UnreachableError(f"the shared folder cannot be used ({error.strerror})", value=place) from error
