"""Copy logs of apps whose app master runs on another machine, with the layout of the local engine."""

from __future__ import annotations

import json
import logging
import os
import re
import shutil
from collections.abc import Mapping
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from themis.archives import unpack_files
from themis.config.names import check_job_id
from themis.errors import InputError
from themis.files import open_below
from themis.hadoop.webhdfs import open_webhdfs

if TYPE_CHECKING:
    from aiohttp import ClientSession, StreamReader

LOG = logging.getLogger("themis.rm.logs")

ARCHIVE_NAME = "logs.tar.gz"
"""The name that app masters use (`am.log_archive`)."""
SOURCE_NAME = "logs.from"
"""The file that holds the URL of the page from which the folder's logs are."""
MAX_LOG_BYTES = 2**30
"""Bytes of one log that are copied. App masters cap logs themselves, at much less by default."""
MAX_ARCHIVE_BYTES, MAX_UNPACKED_BYTES = 2**28, 2**32
"""Of the logs on HDFS: an app may have written anything there."""
_TIMEOUT_S = 10.0
_LIST_BYTES, _MAX_FILES = 4 * 1024 * 1024, 20_000
_CHUNK_BYTES = 1024 * 1024
_NAME = re.compile(r"task-[0-9]{1,6}\.log|history\.jsonl")


async def fetch_page(page_url: str, folder: Path, max_bytes: int = MAX_LOG_BYTES) -> bool:
    """Copy the bytes added since the last call from an app master's page. Returns False if it does not answer.

    Each attempt has its own page, and may have lost the end of an earlier attempt's logs. So a call with a new page
    copies everything again. The page is an app's: redirects are not followed, and answers are bounded in size and time.
    """
    # Import on demand: only engines with app masters on other machines need it.
    import aiohttp

    try:
        async with aiohttp.ClientSession(base_url=page_url, timeout=aiohttp.ClientTimeout(total=_TIMEOUT_S)) as http:
            async with http.get("logs.json", allow_redirects=False) as answer:
                listed = files_of(answer.status, await _at_most(answer.content, _LIST_BYTES))
            _begin(page_url, folder)
            for file in listed:
                size_bytes = min(int(str(file["size_bytes"])), max_bytes)
                await _fetch_file(http, str(file["path"]), size_bytes, folder)
    except (aiohttp.ClientError, TimeoutError, ValueError, KeyError, OSError) as error:
        # The page's address holds a secret of the app's user.
        LOG.info("no logs from the page of %s: %s", folder.name, str(error).replace(page_url, ""))
        return False
    return True


async def _at_most(content: StreamReader, limit: int) -> bytes:
    """Read a body that has at most `limit` bytes. Raises ValueError for a longer one."""
    parts, size = [], 0
    while part := await content.read(_CHUNK_BYTES):
        size += len(part)
        if size > limit:
            raise ValueError(f"an answer of more than {limit} bytes")
        parts.append(part)
    return b"".join(parts)


def files_of(status: int, body: bytes) -> list[Mapping[str, object]]:
    """Return the files that a page lists. Raises ValueError for any other answer, such as a redirect."""
    if status != HTTPStatus.OK:
        raise ValueError(f"logs.json answered with status {status}")
    try:
        found = json.loads(body)
    except RecursionError:
        raise ValueError("logs.json is nested too deeply") from None
    files = found.get("files") if isinstance(found, dict) else None
    if not isinstance(files, list) or len(files) > _MAX_FILES or not all(isinstance(file, dict) for file in files):
        raise ValueError("logs.json is no list of files")
    return files


def _begin(page_url: str, folder: Path) -> None:
    """Remove the logs of another page."""
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
            address = f"logs/{quote(path)}"
            async with http.get(address, params={"offset": str(have)}, allow_redirects=False) as answer:
                if answer.status != HTTPStatus.OK:
                    raise ValueError(f"{address} answered with status {answer.status}")
                # Keep no more bytes than requested, even if the page sends more.
                data = await answer.content.read(min(_CHUNK_BYTES, size_bytes - have))
                length = answer.content_length or len(data)
                start = int(answer.headers.get("X-Next-Offset", have + length)) - length
            if not data:
                return
            if have < start < size_bytes:
                # The bytes in between are not kept. Offsets here stay those of the page.
                os.ftruncate(target, start)
                have = start
            file.write(data)
            file.flush()
            have += len(data)


def fetch_archive(storage_uri: str, folder: Path) -> None:
    """Copy the logs that the app's masters archived on HDFS. Replaces existing ones.

    Raises:
        ThemisError: HDFS does not answer, the archive is too large, or the files cannot be written.
    """
    hdfs, path = open_webhdfs(storage_uri)
    status = hdfs.status(f"{path}/{ARCHIVE_NAME}")
    if status is None:
        return
    if status.size_bytes > MAX_ARCHIVE_BYTES:
        raise InputError("the archive of the app's logs is too large", value=f"{status.size_bytes} bytes")
    # The archive replaces the page's files, so the next page is read from its beginning.
    (folder / SOURCE_NAME).unlink(missing_ok=True)
    # As many bytes as were judged: the file may be another one by now.
    content = b"".join(hdfs.read(f"{path}/{ARCHIVE_NAME}", status.size_bytes))
    unpack_files(content, folder, max_bytes=MAX_UNPACKED_BYTES)
