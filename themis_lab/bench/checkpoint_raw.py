"""The baseline of `bench checkpoint`: one WebHDFS put and one get, with the standard library's HTTP client only."""

from __future__ import annotations

import http.client
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar
from urllib.parse import quote, urlencode, urlsplit

from themis.errors import ThemisError
from themis.hadoop.webhdfs_address import HdfsPlace

PIECE_BYTES = 1 << 20
TIMEOUT_S = 300.0

T = TypeVar("T")


class RawError(ThemisError):
    """A plain WebHDFS request failed."""


class RawHdfs:
    """Plain requests to the first NameNode that answers, without retries, verification or hashes.

    Args:
        place: The place on HDFS.
        user: The user name for a Hadoop without Kerberos.
    """

    def __init__(self, place: HdfsPlace, user: str) -> None:
        self._place = place
        self._user = user

    def put_s(self, path: str, source: Path) -> float:
        """Write a local file in one request to a DataNode. Returns the seconds."""
        begun_s = time.perf_counter()
        target = self._redirect("PUT", path, "CREATE", overwrite="true")
        self._exchange("PUT", target, _consume, source)
        return time.perf_counter() - begun_s

    def get_s(self, path: str, target: Path) -> float:
        """Read a file into a local one. Returns the seconds."""
        begun_s = time.perf_counter()
        source = self._redirect("GET", path, "OPEN")
        self._exchange("GET", source, lambda response: _keep(response, target))
        return time.perf_counter() - begun_s

    def _redirect(self, method: str, path: str, op: str, **more: str) -> str:
        query = urlencode({"op": op, "user.name": self._user, **more})
        url = f"{self._place.urls[0]}/webhdfs/v1{quote(path)}?{query}"
        return self._exchange(method, url, lambda response: response.headers["Location"])

    def _exchange(
        self, method: str, url: str, use: Callable[[http.client.HTTPResponse], T], source: Path | None = None
    ) -> T:
        parts = urlsplit(url)
        connection = http.client.HTTPConnection(parts.netloc, timeout=TIMEOUT_S, blocksize=PIECE_BYTES)
        try:
            if source is None:
                connection.request(method, f"{parts.path}?{parts.query}")
            else:
                with source.open("rb") as stream:
                    length = {"Content-Length": str(source.stat().st_size), "Content-Type": "application/octet-stream"}
                    connection.request(method, f"{parts.path}?{parts.query}", body=stream, headers=length)
            response = connection.getresponse()
            if response.status >= 400:
                raise RawError(f"WebHDFS answered {response.status}", value=url, remedy=response.read(500).decode())
            return use(response)
        except (OSError, http.client.HTTPException) as error:
            raise RawError("a plain WebHDFS request failed", value=url, remedy=str(error)) from error
        finally:
            connection.close()


def _consume(response: http.client.HTTPResponse) -> None:
    response.read()


def _keep(response: http.client.HTTPResponse, target: Path) -> None:
    with target.open("wb") as stream:
        while piece := response.read(PIECE_BYTES):
            stream.write(piece)
