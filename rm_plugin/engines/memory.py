"""A launcher whose app masters exist in memory only, for tests."""

from __future__ import annotations

import signal
from collections.abc import Mapping

from rm_plugin.engines.port import AmExit, AmLaunch, EngineAttempts, OnAmExit
from themis.values import Value


class MemoryAm(Value, frozen=True, kw_only=True):
    """A launched app master. `pid` is invented."""

    launch: AmLaunch
    pid: int

    @property
    def app_id(self) -> str:
        """The app."""
        return self.launch.app_id

    @property
    def attempt(self) -> int:
        """The attempt of the app."""
        return self.launch.attempt

    @property
    def environment(self) -> Mapping[str, str]:
        """The app master's environment."""
        return self.launch.environment


class MemoryAppLauncher:
    """Records launches.

    A test ends an app master with `end`, gives reasons in `queued` why apps wait, in `restarted` the attempts that the
    engine started by itself, and in `taken` those that the site took.
    """

    def __init__(self, on_exit: OnAmExit) -> None:
        self.launched: list[MemoryAm] = []
        self.living: dict[str, MemoryAm] = {}
        self.queued: dict[str, str] = {}
        self.restarted: dict[str, int] = {}
        self.taken: dict[str, frozenset[int]] = {}
        self._on_exit = on_exit

    async def launch(self, launch: AmLaunch) -> int:
        """Record an attempt. Returns an invented process id."""
        await self.kill(launch.app_id)
        am = MemoryAm(launch=launch, pid=len(self.launched) + 1)
        self.launched.append(am)
        self.living[launch.app_id] = am
        return am.pid

    async def adopt(self, app_id: str, attempt: int, pid: int) -> bool:
        """Whether that app master is live."""
        am = self.living.get(app_id)
        return am is not None and (am.attempt, am.pid) == (attempt, pid)

    def waiting(self, app_id: str) -> str:
        """Return the reason that a test has put into `queued`."""
        return self.queued.get(app_id, "")

    def queue(self, app_id: str) -> str:
        """Return nothing: this engine has no queues."""
        return ""

    async def attempts(self, app_id: str, attempt: int) -> EngineAttempts:
        """Return the known attempt, or the one that a test has put into `restarted`, and those in `taken`."""
        newest = max(attempt, self.restarted.get(app_id, 0))
        return EngineAttempts(newest=newest, taken=self.taken.get(app_id, frozenset()))

    async def kill(self, app_id: str) -> None:
        """End the app's master by SIGKILL."""
        await self.end(app_id, -signal.SIGKILL)

    async def shutdown(self) -> None:
        """End all app masters without calling `on_exit`."""
        self.living.clear()

    async def end(self, app_id: str, exit_code: int) -> None:
        """End the app's master, if it is live, with this code, and call `on_exit`."""
        am = self.living.pop(app_id, None)
        if am is not None:
            restarts = max(0, self.restarted.get(app_id, 0) - am.attempt)
            attempt = am.attempt + restarts
            exit_ = AmExit(app_id=app_id, attempt=attempt, restarts=restarts, pid=am.pid, exit_code=exit_code)
            await self._on_exit(exit_)
