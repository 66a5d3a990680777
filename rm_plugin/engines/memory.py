"""App masters that exist in memory only: the shipped adapter for tests."""

from __future__ import annotations

import signal
from collections.abc import Mapping
from dataclasses import dataclass

from rm_plugin.engines.port import AmExit, AmLaunch, OnAmExit


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryAm:
    """An app master as it was launched; `pid` is made up."""

    launch: AmLaunch
    pid: int

    @property
    def app_id(self) -> str:
        """The app."""
        return self.launch.app_id

    @property
    def attempt(self) -> int:
        """Which attempt of it."""
        return self.launch.attempt

    @property
    def environment(self) -> Mapping[str, str]:
        """What the app master was given."""
        return self.launch.environment


class MemoryAppLauncher:
    """Remembers what was launched; a test ends an app master with `end`."""

    def __init__(self, on_exit: OnAmExit) -> None:
        self.launched: list[MemoryAm] = []
        self.living: dict[str, MemoryAm] = {}
        self._on_exit = on_exit

    async def launch(self, launch: AmLaunch) -> int:
        """Remember an attempt; returns a made-up process id."""
        await self.kill(launch.app_id)
        am = MemoryAm(launch=launch, pid=len(self.launched) + 1)
        self.launched.append(am)
        self.living[launch.app_id] = am
        return am.pid

    async def adopt(self, app_id: str, attempt: int, pid: int) -> bool:
        """True when that app master is among the living."""
        am = self.living.get(app_id)
        return am is not None and (am.attempt, am.pid) == (attempt, pid)

    async def kill(self, app_id: str) -> None:
        """End the app's master by SIGKILL."""
        await self.end(app_id, -signal.SIGKILL)

    async def shutdown(self) -> None:
        """End all without telling."""
        self.living.clear()

    async def end(self, app_id: str, exit_code: int) -> None:
        """End the app's master, if one lives, with this code, and tell."""
        am = self.living.pop(app_id, None)
        if am is not None:
            await self._on_exit(AmExit(app_id=app_id, attempt=am.attempt, pid=am.pid, exit_code=exit_code))
