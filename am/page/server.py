"""The web server of the app master's page. It runs in the app master's event loop."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable
from typing import TYPE_CHECKING

from am.page.state import AmPageState

if TYPE_CHECKING:
    from aiohttp import web

_EVERYWHERE = "0.0.0.0"


class AmPage:
    """Serves one app's page. All its links are relative, so that a proxy can serve it at any path.

    Args:
        state: Returns the app's present state, or None until the app master has received its app.
    """

    def __init__(self, state: Callable[[], AmPageState | None]) -> None:
        self._state = state
        self._runner: web.AppRunner | None = None

    async def start(self, host: str) -> int:
        """Listen on a free port, and return the port.

        Args:
            host: The name by which others reach this machine. If it is a loopback name or address, the server accepts
                connections from this machine only, otherwise from all networks.

        Raises:
            InputError: Nothing can listen.
        """
        # Import on demand, because an app master without a page starts faster without a web server.
        from am.page.routes import application
        from themis.web.answers import listen

        self._runner, port = await listen(application(self._state), host if is_loopback(host) else _EVERYWHERE, 0)
        return port

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
