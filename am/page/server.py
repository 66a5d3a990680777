"""The app master's page: starts and ends its web server, on the app master's own loop."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable
from typing import TYPE_CHECKING

from am.page.state import AmPageState

if TYPE_CHECKING:
    from aiohttp import web

_EVERYWHERE = "0.0.0.0"


class AmPage:
    """Serves one app's page, whose links are all relative, so that it can stand behind a proxy at any path.

    `state` tells the app at the moment of a request; None while the app master has not been told its app yet.
    """

    def __init__(self, state: Callable[[], AmPageState | None]) -> None:
        self._state = state
        self._runner: web.AppRunner | None = None

    async def start(self, host: str) -> int:
        """Listen at a free port, which is returned.

        Args:
            host: The name by which others reach this machine. Under a loopback name or address only this machine is
                let in, else every network that it is on.

        Raises:
            InputError: Nothing can listen.
        """
        # Here and not above: an app master without a page has no use for a web server, and starts faster.
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
    """Whether a name or an address means this machine only; names are not looked up."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
