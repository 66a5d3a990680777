"""A checksum that is computed while the data is transferred."""

from __future__ import annotations

import hashlib
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Any, Self


class ConcurrentDigest:
    """SHA-256 of pieces. A thread hashes each piece while the caller transfers it and waits for the next.

    Only one piece is pending at a time, so a slow processor slows the transfer instead of filling the memory. Hashing
    releases Python's interpreter lock. Use it as a context manager.
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
        """Add the next piece."""
        self._wait()
        self._under_way = self._pool.submit(self._digest.update, piece)

    def state(self) -> Any:
        """Return the present state. `go_back` to it removes later pieces."""
        self._wait()
        return self._digest.copy()

    def go_back(self, state: Any) -> None:
        """Return to an earlier state."""
        self._wait()
        self._digest = state.copy()

    def hexdigest(self) -> str:
        """Return the checksum of all pieces so far."""
        self._wait()
        return str(self._digest.hexdigest())

    def _wait(self) -> None:
        if self._under_way is not None:
            self._under_way.result()
            self._under_way = None
