"""Logs of apps whose app master runs elsewhere, brought into the folder where the local engine would have them."""

from __future__ import annotations

import logging
import os
import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from themis.archives import unpack_files
from themis.config.names import check_job_id
from themis.errors import ThemisError
from themis.files import open_below
from themis.hadoop.webhdfs import open_webhdfs

if TYPE_CHECKING:
    from aiohttp import ClientSession

LOG = logging.getLogger("themis.rm.logs")

ARCHIVE_NAME = "logs.tar.gz"
"""As app masters call it (`am.log_archive`)."""
SOURCE_NAME = "logs.from"
"""Names the page that the logs in the folder are from."""
_TIMEOUT_S = 10.0
_CHUNK_BYTES = 1024 * 1024
_NAME = re.compile(r"task-[0-9]{1,6}\.log|history\.jsonl")


async def fetch_page(page_url: str, folder: Path) -> bool:
    """Bring what has grown since, from an app master's page; False when it does not answer.

    Each attempt has a page of its own, and may have lost the end of what the one before it had: from another page
    everything is brought anew.
    """
    # Imported here: only engines with app masters elsewhere need it.
    import aiohttp

    try:
        async with aiohttp.ClientSession(base_url=page_url, timeout=aiohttp.ClientTimeout(total=_TIMEOUT_S)) as http:
            async with http.get("logs.json") as answer:
                listed = (await answer.json())["files"]
            _begin(page_url, folder)
            for file in listed:
                await _fetch_file(http, str(file["path"]), int(file["size_bytes"]), folder)
    except (aiohttp.ClientError, TimeoutError, ValueError, KeyError, OSError) as error:
        LOG.info("no logs from %s: %s", page_url, error)
        return False
    return True


def _begin(page_url: str, folder: Path) -> None:
    """Remove what is from another page."""
    source = folder / SOURCE_NAME
    if not source.exists() or source.read_text() != page_url:
        shutil.rmtree(folder / "jobs", ignore_errors=True)
        folder.mkdir(parents=True, exist_ok=True)
        source.write_text(page_url)


async def _fetch_file(http: ClientSession, path: str, size_bytes: int, folder: Path) -> None:
    job_id, _, name = path.partition("/")
    check_job_id(job_id)
    if not _NAME.fullmatch(name):
        raise ValueError(f"not the name of a log: {path[:200]}")
    (folder / "jobs" / job_id).mkdir(parents=True, exist_ok=True)
    target = open_below(folder, "jobs", job_id, name, flags=os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    with os.fdopen(target, "ab") as file:
        have = os.fstat(target).st_size
        while have < size_bytes:
            async with http.get(f"logs/{quote(path)}", params={"offset": str(have)}) as answer:
                answer.raise_for_status()
                # No more than was asked for, however much is sent.
                data = await answer.content.read(min(_CHUNK_BYTES, size_bytes - have))
            if not data:
                return
            file.write(data)
            file.flush()
            have += len(data)


def fetch_archive(storage_uri: str, folder: Path) -> None:
    """Bring what the app's masters archived on HDFS; what is there already is replaced."""
    try:
        hdfs, path = open_webhdfs(storage_uri)
        if hdfs.status(f"{path}/{ARCHIVE_NAME}") is None:
            return
        # The page's files are replaced, and may be others: whoever answers next is asked for all of it.
        (folder / SOURCE_NAME).unlink(missing_ok=True)
        unpack_files(hdfs.read_whole(f"{path}/{ARCHIVE_NAME}"), folder)
    except ThemisError as error:
        LOG.warning("no logs from %s: %s", storage_uri, error)
