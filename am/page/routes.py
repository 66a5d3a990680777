"""The URLs of an app master's page. docs/reference/web.md describes all of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from aiohttp import web

from am.page.html import app_page, logs_page
from am.page.log_files import CHUNK_BYTES, MAX_CHUNK_BYTES, log_files, read_log
from am.page.state import AmPageState
from am.page.status_document import status_document
from themis.errors import UnreachableError
from themis.web.answers import html_answer, json_answer, site, whole_number

_FURTHEST = 2**53


def application(state: Callable[[], AmPageState | None]) -> web.Application:
    """Return the web application with all URLs."""
    routes = Routes(state)
    served = site(is_document=lambda path: path.endswith(".json"))
    served.add_routes(
        [
            web.get("/", routes.app),
            web.get("/status.json", routes.status),
            web.get("/logs/", routes.logs),
            web.get("/logs.json", routes.log_sizes),
            web.get("/logs/{job_id:[^/]+}/{name:[^/]+}", routes.log),
        ]
    )
    return served


class Routes:
    """One method per URL."""

    def __init__(self, state: Callable[[], AmPageState | None]) -> None:
        self._read_state = state

    async def app(self, _request: web.Request) -> web.Response:
        """Serve the page of the app and its jobs."""
        return html_answer(app_page(self._state()))

    async def status(self, _request: web.Request) -> web.Response:
        """Serve the same as JSON."""
        return json_answer(status_document(self._state()))

    async def logs(self, _request: web.Request) -> web.Response:
        """Serve the list of logs."""
        state = self._state()
        return html_answer(logs_page(state, await asyncio.to_thread(log_files, state)))

    async def log_sizes(self, _request: web.Request) -> web.Response:
        """Serve the list of logs and their sizes as JSON."""
        files = await asyncio.to_thread(log_files, self._state())
        listed = [{"path": f"{file.job_id}/{file.name}", "size_bytes": file.size_bytes} for file in files]
        return json_answer({"files": listed})

    async def log(self, request: web.Request) -> web.Response:
        """Serve bytes of one log."""
        offset = whole_number(request, "offset", 0, least=-_FURTHEST, most=_FURTHEST)
        limit = whole_number(request, "limit", CHUNK_BYTES, least=1, most=MAX_CHUNK_BYTES)
        job_id, name = request.match_info["job_id"], request.match_info["name"]
        # Use a thread, because the log may be long and the disk slow.
        part = await asyncio.to_thread(read_log, self._state(), job_id, name, offset, limit)
        headers = {"Content-Type": "text/plain; charset=utf-8", "X-Next-Offset": str(part.next_offset)}
        return web.Response(body=part.data, headers=headers)

    def _state(self) -> AmPageState:
        state = self._read_state()
        if state is None:
            raise UnreachableError("the app master has not received its app yet", remedy="try again in a moment")
        return state
