"""The page of a standby: every address answers 503 and says which ResourceManager is active.

Browsers get a page that renews itself, others a line of text.
"""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING

from rm_plugin.service.web.rm_page import parsed_page_address
from themis.web.elements import element
from themis.web.frame import REFRESH_S, page

if TYPE_CHECKING:
    from aiohttp import web


class StandbyPage:
    """A web server that says only that this ResourceManager waits. `holder` is the one that it waits for."""

    def __init__(self) -> None:
        self.holder = "a ResourceManager that is not known yet"
        self._runner: web.AppRunner | None = None

    async def start(self, listen: str, tls: ssl.SSLContext | None = None) -> str:
        """Listen at HOST:PORT, port 0 for any free one, with TLS or without; returns the page's address.

        Raises:
            InputError: Nothing can listen there, or it is no HOST:PORT.
        """
        host, port = parsed_page_address(listen)
        # Imported here, as `RmPage` does: a ResourceManager without a page needs no web server.
        from aiohttp import web

        from themis.web.answers import html_answer
        from themis.web.answers import listen as serve

        async def answer(request: web.Request) -> web.Response:
            # 503, so that a load balancer sends readers to the active one.
            if "text/html" in request.headers.get("Accept", ""):
                shown = html_answer(standby_page(self.holder), status=503)
                # Not by the script of the other pages: it takes a 503 for no answer.
                shown.headers["Refresh"] = str(REFRESH_S)
                return shown
            return web.Response(text=f"standby of {self.holder}\n", status=503)

        application = web.Application()
        application.router.add_get("/{path:.*}", answer)
        self._runner, bound = await serve(application, host.strip("[]"), port, tls)
        return f"{'http' if tls is None else 'https'}://{host}:{bound}/"

    async def stop(self) -> None:
        """End the server."""
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None


def standby_page(holder: str) -> str:
    """The page for browsers. No reader is signed in: only the active ResourceManager knows its users."""
    return page(
        "Themis, a standby",
        element("p", "Not signed in: only the active ResourceManager knows its users.", class_="reader"),
        element("h1", "A standby"),
        element("p", "This ResourceManager waits for ", element("strong", holder), "."),
        element("p", "It takes over when that one ends. Until then read the page of that one."),
        refresh_s=0,
    )
