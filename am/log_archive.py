"""Archive an app's logs and code in one file, where the next attempt and the ResourceManager find it."""

from __future__ import annotations

import asyncio
import logging
import time
from pathlib import Path
from typing import Protocol

from themis.archives import pack_files, unpack_files
from themis.code_archive import CODE_ARCHIVE
from themis.errors import ThemisError

LOG = logging.getLogger("themis.am.archive")

ARCHIVE_NAME = "logs.tar.gz"
PERIOD_S = 10.0
_SHARE = 0.05
"""Maximum share of the time for archiving. Large logs are archived less often."""
_LOG_PATTERNS = ("jobs/*/task-*.log", "jobs/*/history.jsonl")
_PATTERNS = (*_LOG_PATTERNS, CODE_ARCHIVE)


class ArchiveStore(Protocol):
    """One place that holds one archive."""

    def put(self, content: bytes) -> None:
        """Replace the archive, in one step; raises ThemisError."""
        ...

    def get(self) -> bytes | None:
        """Return the archive, or None if there is none yet. Raises ThemisError."""
        ...


class LogArchive:
    """Keeps the logs in an app's folder. All methods but `restore` belong to one loop.

    Args:
        folder: The app's folder on this machine.
        store: Where the archive lies.
    """

    def __init__(self, folder: Path, store: ArchiveStore) -> None:
        self._folder = folder
        self._store = store
        self._kept: tuple[tuple[str, int], ...] = ()
        self._patterns: tuple[str, ...] = _PATTERNS
        self._writing = asyncio.Lock()

    def restore(self) -> None:
        """Restore the files of earlier attempts. If this fails, the profiles learnt from their logs are lost."""
        try:
            content = self._store.get()
            if content is not None:
                unpack_files(content, self._folder)
        except ThemisError as error:
            LOG.warning("the logs of earlier attempts cannot be read: %s", error)

    async def keep(self, *, last: bool = False) -> None:
        """Archive what is there now, unless that was done already.

        Args:
            last: The app ends, so that no attempt will need its code. It is left out.
        """
        async with self._writing:
            if last:
                self._patterns = _LOG_PATTERNS
            files = sorted(path for pattern in self._patterns for path in self._folder.glob(pattern))
            sizes = tuple((str(path), path.lstat().st_size) for path in files)
            if sizes == self._kept:
                return
            try:
                await asyncio.to_thread(self._write, files)
            except (ThemisError, OSError) as error:
                LOG.warning("the logs are not archived: %s", error)
            else:
                self._kept = sizes

    async def keep_on(self) -> None:
        """Archive repeatedly, until cancelled."""
        while True:
            begun_s = time.monotonic()
            await self.keep()
            await asyncio.sleep(max(PERIOD_S, (time.monotonic() - begun_s) / _SHARE))

    def _write(self, files: list[Path]) -> None:
        self._store.put(pack_files(self._folder, files))


def open_archive(folder: Path, kept_at: str) -> LogArchive | None:
    """Return the archive of an app, or None if its folder on this machine is persistent."""
    if "://" not in kept_at:
        return None
    # Imported here: app masters of the local engine need neither the packages nor the time they take.
    from am.log_archive_hdfs import HdfsArchiveStore

    return LogArchive(folder, HdfsArchiveStore(f"{kept_at}/{ARCHIVE_NAME}"))
