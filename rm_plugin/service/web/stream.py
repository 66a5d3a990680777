"""Server-sent events: each informs a page that what it shows has changed. The page then fetches it.

So a page needs no timer, is renewed within about two seconds of a change, and is made in one place, with or without
scripts.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

from aiohttp import web

from rm_plugin.service.entries import AppEntry
from rm_plugin.service.manager import ResourceManager
from themis.errors import UnreachableError
from themis.web.frame import HEADERS

STEP_S = 2.0
"""Seconds between two looks, and at least between two events."""
IDLE_S = 30.0
"""After this time without a change comes an event all the same: pages show how long ago things were."""
MAX_STREAMS = 200
"""More readers get no stream, and ask every few seconds instead."""
_RETRY_MS = 3_000


def cluster_mark(manager: ResourceManager) -> str:
    """Return a text that changes whenever the page of the cluster does."""
    return f"{manager.recorder.summary.sequence}-{manager.entries.heartbeats}"


def app_mark(manager: ResourceManager, entry: AppEntry) -> str:
    """Return a text that changes whenever the page of an app does. Rounds change why it waits."""
    rounds = 0 if entry.ended else manager.rounds.rounds
    seen = f"{entry.state}-{entry.leave_reason != ''}-{entry.attempt}-{rounds}"
    return f"{seen}-{entry.last_seen_s:.3f}" if entry.is_active else seen


class Streams:
    """The open streams of one ResourceManager."""

    def __init__(self) -> None:
        self._open = 0

    async def serve(self, request: web.Request, mark: Callable[[], str]) -> web.StreamResponse:
        """Send an event after each change, until the reader goes away.

        Args:
            request: With `after`, or after an interruption the header `Last-Event-ID`: the mark that the reader has.
            mark: Returns the present mark.

        Raises:
            UnreachableError: Too many streams are open.
        """
        if self._open >= MAX_STREAMS:
            raise UnreachableError("too many streams are open", value=MAX_STREAMS, remedy="ask again every few seconds")
        self._open += 1
        try:
            answer = web.StreamResponse(headers={**HEADERS, "Content-Type": "text/event-stream; charset=utf-8"})
            # The reader may go away at any time.
            with contextlib.suppress(ConnectionError):
                await answer.prepare(request)
                await answer.write(f"retry: {_RETRY_MS}\n\n".encode())
                await _send_changes(request, answer, mark)
            return answer
        finally:
            self._open -= 1


async def _send_changes(request: web.Request, answer: web.StreamResponse, mark: Callable[[], str]) -> None:
    known = request.headers.get("Last-Event-ID", request.query.get("after", ""))
    loop = asyncio.get_running_loop()
    sent_at_s = loop.time()
    while request.transport is not None and not request.transport.is_closing():
        present = mark()
        if present != known or loop.time() - sent_at_s >= IDLE_S:
            known, sent_at_s = present, loop.time()
            await answer.write(f"event: change\nid: {present}\ndata: {present}\n\n".encode())
        await asyncio.sleep(STEP_S)
