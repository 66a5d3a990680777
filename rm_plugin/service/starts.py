"""Turns for starting app masters, so that a burst of submissions does not start all of them at once."""

from __future__ import annotations

import asyncio

STARTING_S = 30.0
"""Seconds after which a start gives up its turn: an app master may wait long in the engine's queue."""


class Starts:
    """At most `limit` app masters start at a time, in the order in which they ask for a turn.

    A turn ends when the app master registered or is lost (`done`), or after `STARTING_S`.

    Example: 1,000 apps are submitted at once and `limit` is 16. Sixteen app masters start. Whenever one of them
        registers, the next one starts.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._starting: dict[str, asyncio.TimerHandle] = {}
        self._waiting: dict[str, asyncio.Future[None]] = {}

    @property
    def has_room(self) -> bool:
        """Whether a start would get its turn at once."""
        return len(self._starting) < self._limit

    def waits(self, app_id: str) -> bool:
        """Whether an app waits for its turn."""
        return app_id in self._waiting

    async def turn(self, app_id: str) -> None:
        """Wait for the app's turn. The caller starts its app master, and `done` or time ends the turn."""
        self.done(app_id)
        if self.has_room:
            self._begin(app_id)
            return
        self._waiting[app_id] = turn = asyncio.get_running_loop().create_future()
        try:
            await turn
        finally:
            if self._waiting.get(app_id) is turn:
                del self._waiting[app_id]

    def done(self, app_id: str) -> None:
        """End an app's turn, if it has one, and give it to the app that has waited longest."""
        timer = self._starting.pop(app_id, None)
        if timer is None:
            return
        timer.cancel()
        while self._waiting and self.has_room:
            waiting = next(iter(self._waiting))
            turn = self._waiting.pop(waiting)
            if not turn.cancelled():
                self._begin(waiting)
                turn.set_result(None)

    def _begin(self, app_id: str) -> None:
        self._starting[app_id] = asyncio.get_running_loop().call_later(STARTING_S, self.done, app_id)
