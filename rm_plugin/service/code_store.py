"""The code of submitted apps: one archive for each content, for app masters that register, until no app needs it."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from pathlib import Path

from rm_plugin.service.store import StoreError
from themis.apps import CodeArchive
from themis.code_archive import MAX_PACKED_BYTES
from themis.errors import InputError
from themis.files import sync_folder

FOLDER = "code"
_ENDING, _PARTIAL = ".tar.gz", ".partial"


class CodeStore:
    """Archives by their hash. Files are read and written in threads.

    Args:
        files_dir: The folder of apps' files and of archives.
    """

    def __init__(self, files_dir: Path) -> None:
        self._folder = files_dir / FOLDER
        # By hash, the submissions that are not accepted yet.
        self._submitting: Counter[str] = Counter()
        self._changing = asyncio.Lock()

    @contextlib.asynccontextmanager
    async def keeping(self, code: CodeArchive | None, content: bytes) -> AsyncIterator[None]:
        """Keep the code of an app, and do not remove it while the app is being submitted.

        Args:
            code: Its hash, or None if no code travels with the app.
            content: The archive. May be empty if an earlier app had the same.

        Raises:
            InputError: The archive is too large, is not that of the hash, or is missing.
            StoreError: It cannot be written.
        """
        if code is None:
            if content:
                raise InputError("code came without its hash", value=f"{len(content)} bytes")
            yield
            return
        if len(content) > MAX_PACKED_BYTES:
            raise InputError(
                "the code is too large", value=f"{len(content)} bytes", remedy=f"at most {MAX_PACKED_BYTES}"
            )
        if content and CodeArchive.of(content).sha256 != code.sha256:
            raise InputError("the code was damaged on its way", value=code.sha256, remedy="submit the app again")
        self._submitting[code.sha256] += 1
        try:
            async with self._changing:
                await asyncio.to_thread(self._write, code.sha256, content)
            yield
        finally:
            self._submitting[code.sha256] -= 1

    async def remove_unused(self, used: Callable[[], Collection[str]], note: Callable[[int], Awaitable[None]]) -> int:
        """Remove the archives that no app needs, and what writes that were cut short left. Returns their number.

        Args:
            used: Returns the hashes of all apps that may still start a task, or whose users may resubmit them.
            note: Called with the number before anything is removed; nothing is if it raises.

        Raises:
            OSError: The folder cannot be read or changed.
        """
        async with self._changing:
            # No submission writes now. One that began to wait is counted, and apps accepted meanwhile are used.
            present = await asyncio.to_thread(self._present)
            needed = {*used(), *(sha256 for sha256, count in self._submitting.items() if count)}
            unused = [path for path in present if path.name.removesuffix(_ENDING) not in needed]
            if unused:
                await note(len(unused))
                await asyncio.to_thread(_remove, unused)
            # Drops the counts of 0.
            self._submitting += Counter()
        return len(unused)

    async def content(self, code: CodeArchive | None) -> bytes:
        """Return the archive, or nothing if it is not there or there is no code."""
        if code is None:
            return b""
        with contextlib.suppress(FileNotFoundError):
            return await asyncio.to_thread(self._path(code.sha256).read_bytes)
        return b""

    def _path(self, sha256: str) -> Path:
        return self._folder / f"{sha256}{_ENDING}"

    def _present(self) -> list[Path]:
        with contextlib.suppress(FileNotFoundError):
            return sorted(path for path in self._folder.iterdir() if path.name.endswith((_ENDING, _PARTIAL)))
        return []

    def _write(self, sha256: str, content: bytes) -> None:
        path = self._path(sha256)
        if path.is_file():
            return
        if not content:
            raise InputError("the app's code is no longer stored", value=sha256, remedy="submit its group file again")
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            partial = path.with_name(f".{sha256}.{os.getpid()}{_PARTIAL}")
            partial.write_bytes(content)
            with partial.open("rb") as file:
                os.fsync(file.fileno())
            partial.replace(path)
            sync_folder(self._folder)
        except OSError as error:
            raise StoreError("the app's code cannot be written", value=str(path), remedy=str(error)) from error


def _remove(paths: Collection[Path]) -> None:
    for path in paths:
        path.unlink(missing_ok=True)
