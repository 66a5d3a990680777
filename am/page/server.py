"""The web server of the app master's page. It runs in the app master's event loop."""

from __future__ import annotations

import ipaddress
import secrets
from collections.abc import Callable
from typing import TYPE_CHECKING

from am.page.state import AmPageState

if TYPE_CHECKING:
    from aiohttp import web

_EVERYWHERE = "0.0.0.0"
_SECRET_BYTES = 24
"""192 bits: 32 characters."""


class AmPage:
    """Serves one app's page below a path that cannot be guessed, so that only those who know its address read it.

    The ResourceManager shows the address to the app's owner and to administrators. All links are relative, so that a
    proxy can serve the page at any path.

    Args:
        state: Returns the app's present state, or None until the app master has received its app.
    """

    def __init__(self, state: Callable[[], AmPageState | None]) -> None:
        self._state = state
        self._runner: web.AppRunner | None = None

    async def start(self, host: str) -> str:
        """Listen on a free port, and return the page's address, `http://HOST:PORT/SECRET/`.

        Args:
            host: The name by which others reach this machine. If it is a loopback name or address, the server accepts
                connections from this machine only, otherwise from all networks.

        Raises:
            InputError: Nothing can listen.
        """
        # Import on demand, because an app master without a page starts faster without a web server.
        from am.page.routes import application
        from themis.web.answers import listen, site

        secret = secrets.token_urlsafe(_SECRET_BYTES)
        root = site(is_document=lambda path: path.endswith(".json"))
        root.add_subapp(f"/{secret}", application(self._state))
        self._runner, port = await listen(root, host if is_loopback(host) else _EVERYWHERE, 0)
        return f"http://{host}:{port}/{secret}/"

    async def stop(self) -> None:
        """End the server."""
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None


def is_loopback(host: str) -> bool:
    """Whether a name or an address means this machine only. Does not resolve names."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
