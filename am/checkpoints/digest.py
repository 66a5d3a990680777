"""A checksum that is computed beside the transfer of what it is of."""

from __future__ import annotations

import hashlib
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Any, Self


class ConcurrentDigest:
    """SHA-256 of pieces, each hashed in a thread while the caller moves it and waits for the next.

    One piece is on its way at a time, so a slow processor holds up the transfer rather than filling the memory. Hashing
    leaves Python's lock alone. Close it, or enter it.
    """

    def __init__(self) -> None:
        self._digest: Any = hashlib.sha256()
        self._pool = ThreadPoolExecutor(1, "digest")
        self._under_way: Future[None] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._pool.shutdown()

    def update(self, piece: bytes) -> None:
        """Take the next piece."""
        self._settle()
        self._under_way = self._pool.submit(self._digest.update, piece)

    def state(self) -> Any:
        """What `go_back` takes, to forget the pieces that come from here on."""
        self._settle()
        return self._digest.copy()

    def go_back(self, state: Any) -> None:
        """Be again as when `state` was taken."""
        self._settle()
        self._digest = state.copy()

    def hexdigest(self) -> str:
        """The checksum of all pieces so far."""
        self._settle()
        return str(self._digest.hexdigest())

    def _settle(self) -> None:
        if self._under_way is not None:
            self._under_way.result()
            self._under_way = None
