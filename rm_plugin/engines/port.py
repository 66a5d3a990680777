"""The AppLauncher port: how the ResourceManager starts and ends app masters, and learns that one has ended."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class AmLaunch:
    """An attempt of an app, to be started.

    Attributes:
        app_id: The app.
        attempt: Counts from 1.
        environment: What its app master needs to know; THEMIS_APP_ID and THEMIS_ATTEMPT are added.
        working_dir: The app's folder on this machine.
        name: Of the app, for lists.
        user: Who submitted it.
        queue: Where the engine has queues.
        attempts_left: How many more the app may have, this one included; an engine may make them by itself.
    """

    app_id: str
    attempt: int
    environment: Mapping[str, str] = field(repr=False)
    working_dir: Path
    name: str = ""
    user: str = ""
    queue: str = ""
    attempts_left: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class AmExit:
    """The end of an app master.

    `exit_code` is None when nobody can know it: it was adopted, not started by us. `killed` is set when an operator
    ended the app in the engine itself, and says what the engine says of it.
    """

    app_id: str
    attempt: int
    pid: int
    exit_code: int | None
    killed: str = ""


OnAmExit = Callable[[AmExit], Awaitable[None]]
"""Told once for each app master that ends for whatever cause, after all its tasks are gone."""

MachinesOf = Callable[[str], Collection[str]]
"""The machines on which an app has leases."""


class AppLauncher(Protocol):
    """Starts and ends app masters. All methods belong to one event loop."""

    async def launch(self, launch: AmLaunch) -> int:
        """Start an attempt and return its process id (or a number that stands for one).

        An earlier attempt of the app is ended first.

        Raises:
            UnreachableError: The engine is away; the same attempt is launched again later.
            ThemisError: It cannot be started.
        """
        ...

    async def adopt(self, app_id: str, attempt: int, pid: int) -> bool:
        """Take back an app master that an earlier ResourceManager started; False when it lives no more."""
        ...

    async def kill(self, app_id: str) -> None:
        """End the app's master and all its tasks; returns when they are gone. An unknown app is no error."""
        ...

    async def shutdown(self) -> None:
        """End every app master and task of this ResourceManager's run; no exit is told any more."""
        ...
