"""App masters that exist in memory only: the shipped adapter for tests."""

from __future__ import annotations

import signal
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from rm_plugin.engines.port import AmExit, OnAmExit


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryAm:
    """An app master as it was launched."""

    app_id: str
    attempt: int
    pid: int
    environment: Mapping[str, str] = field(default_factory=dict)
    working_dir: Path = Path()


class MemoryAppLauncher:
    """Remembers what was launched; a test ends an app master with `end`."""

    def __init__(self, on_exit: OnAmExit) -> None:
        self.launched: list[MemoryAm] = []
        self.living: dict[str, MemoryAm] = {}
        self._on_exit = on_exit

    async def launch(self, app_id: str, attempt: int, environment: Mapping[str, str], working_dir: Path) -> int:
        """Remember an attempt; returns a made-up process id."""
        await self.kill(app_id)
        ours = {**environment, "THEMIS_APP_ID": app_id, "THEMIS_ATTEMPT": str(attempt)}
        pid = len(self.launched) + 1
        am = MemoryAm(app_id=app_id, attempt=attempt, pid=pid, environment=ours, working_dir=working_dir)
        self.launched.append(am)
        self.living[app_id] = am
        return pid

    async def adopt(self, app_id: str, attempt: int, pid: int) -> bool:
        """True when that app master is among the living."""
        am = self.living.get(app_id)
        return am is not None and (am.attempt, am.pid) == (attempt, pid)

    async def kill(self, app_id: str) -> None:
        """End the app's master by SIGKILL."""
        await self.end(app_id, -signal.SIGKILL)

    def is_alive(self, pid: int) -> bool:
        """Whether the app master of this made-up id lives."""
        return any(am.pid == pid for am in self.living.values())

    async def shutdown(self) -> None:
        """End all without telling."""
        self.living.clear()

    async def end(self, app_id: str, exit_code: int) -> None:
        """End the app's master, if one lives, with this code, and tell."""
        am = self.living.pop(app_id, None)
        if am is not None:
            await self._on_exit(AmExit(app_id=app_id, attempt=am.attempt, pid=am.pid, exit_code=exit_code))
