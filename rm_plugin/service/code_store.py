"""The code of submitted apps: one archive for each content, for app masters that register."""

from __future__ import annotations

import asyncio
import contextlib
import os
from pathlib import Path

from rm_plugin.service.store import StoreError
from themis.apps import CodeArchive
from themis.code_archive import MAX_PACKED_BYTES
from themis.errors import InputError
from themis.files import sync_folder

FOLDER = "code"


class CodeStore:
    """Archives by their hash. Files are read and written in threads.

    Args:
        files_dir: The folder of apps' files and of archives.
    """

    def __init__(self, files_dir: Path) -> None:
        self._folder = files_dir / FOLDER

    async def keep(self, code: CodeArchive | None, content: bytes) -> None:
        """Keep the code of an app that is being submitted.

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
            return
        if len(content) > MAX_PACKED_BYTES:
            raise InputError(
                "the code is too large", value=f"{len(content)} bytes", remedy=f"at most {MAX_PACKED_BYTES}"
            )
        if content and CodeArchive.of(content).sha256 != code.sha256:
            raise InputError("the code was damaged on its way", value=code.sha256, remedy="submit the app again")
        await asyncio.to_thread(self._write, code.sha256, content)

    async def content(self, code: CodeArchive | None) -> bytes:
        """Return the archive, or nothing if it is not there or there is no code."""
        if code is None:
            return b""
        with contextlib.suppress(FileNotFoundError):
            return await asyncio.to_thread(self._path(code.sha256).read_bytes)
        return b""

    def _path(self, sha256: str) -> Path:
        return self._folder / f"{sha256}.tar.gz"

    def _write(self, sha256: str, content: bytes) -> None:
        path = self._path(sha256)
        if path.is_file():
            return
        if not content:
            raise InputError("the app's code is no longer stored", value=sha256, remedy="submit its group file again")
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            partial = path.with_name(f".{sha256}.{os.getpid()}.partial")
            partial.write_bytes(content)
            with partial.open("rb") as file:
                os.fsync(file.fileno())
            partial.replace(path)
            sync_folder(self._folder)
        except OSError as error:
            raise StoreError("the app's code cannot be written", value=str(path), remedy=str(error)) from error
