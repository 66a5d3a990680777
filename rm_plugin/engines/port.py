"""The AppLauncher port: how the ResourceManager starts and ends app masters, and learns that one has ended."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class AmExit:
    """The end of an app master. `exit_code` is None when nobody can know it: it was adopted, not started by us."""

    app_id: str
    attempt: int
    pid: int
    exit_code: int | None


OnAmExit = Callable[[AmExit], Awaitable[None]]
"""Told once for each app master that ends for whatever cause, after all its tasks are gone."""


class AppLauncher(Protocol):
    """Starts and ends app masters. All methods belong to one event loop."""

    async def launch(self, app_id: str, attempt: int, environment: Mapping[str, str], working_dir: Path) -> int:
        """Start an attempt and return its process id (or a number that stands for one).

        An earlier attempt of the app is ended first. THEMIS_APP_ID and THEMIS_ATTEMPT are added to `environment`.
        Raises ThemisError when it cannot be started.
        """
        ...

    async def adopt(self, app_id: str, attempt: int, pid: int) -> bool:
        """Take back an app master that an earlier ResourceManager started; False when it lives no more."""
        ...

    async def kill(self, app_id: str) -> None:
        """End the app's master and all its tasks; returns when they are gone. An unknown app is no error."""
        ...

    def is_alive(self, pid: int) -> bool:
        """Whether the process of this id lives."""
        ...

    async def shutdown(self) -> None:
        """End every app master and task of this ResourceManager's run; no exit is told any more."""
        ...
