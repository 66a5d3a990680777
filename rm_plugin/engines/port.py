"""The AppLauncher port: it starts and ends app masters, and reports when one has ended. The HeldLock that it checks."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Collection, Mapping
from pathlib import Path
from typing import Protocol

from themis.values import Value, repr_without


class AmLaunch(Value, frozen=True, kw_only=True):
    """An attempt of an app, to be started.

    Attributes:
        app_id: The app.
        attempt: Counts from 1.
        environment: Variables of its app master. THEMIS_APP_ID and THEMIS_ATTEMPT are added.
        token: By which the app master proves itself (docs/explanation/security.md). It must reach no other process: an
            engine passes it neither in the environment nor in the command line.
        working_dir: The app's folder on this machine.
        name: The app's name, for lists.
        user: The user who submitted it.
        tasks_memory_mb: The memory in MiB that all its tasks may use at a time.
        queue: The queue, for engines with queues.
        attempts_left: Number of attempts that the app still has, including this one. An engine may start them itself.
        failures_window_s: Seconds after which the loss of an attempt no longer counts.
    """

    app_id: str
    attempt: int
    environment: Mapping[str, str]
    working_dir: Path
    token: str = ""
    name: str = ""
    user: str = ""
    tasks_memory_mb: int = 0
    queue: str = ""
    attempts_left: int = 1
    failures_window_s: float = math.inf

    __repr__ = repr_without("environment", "token")


class AmExit(Value, frozen=True, kw_only=True):
    """The end of an app master.

    Attributes:
        attempt: The attempt that ended last.
        restarts: How many attempts the engine started by itself since the launch, of attempt `attempt - restarts`.
        exit_code: None if it is unknown, because an earlier ResourceManager started the app master.
        killed: The engine's message if an operator ended the app in the engine itself, else empty.
        last_words: The last line of its log, if it failed and the engine can read it.
        taken: As in `EngineAttempts`.
    """

    app_id: str
    attempt: int
    pid: int
    exit_code: int | None
    restarts: int = 0
    killed: str = ""
    last_words: str = ""
    taken: frozenset[int] = frozenset()


class EngineAttempts(Value, frozen=True, kw_only=True):
    """The attempts of an app that an engine has started.

    Attributes:
        newest: The newest one.
        taken: Those that have ended through no fault of the app, because the site took the app master: its node was
            lost, a disk broke, or YARN preempted it.
    """

    newest: int
    taken: frozenset[int] = frozenset()


OnAmExit = Callable[[AmExit], Awaitable[None]]
"""Called once for each app master that ends for any reason, after all its tasks have ended."""

MachinesOf = Callable[[str], Collection[str]]
"""Returns the machines on which an app has leases."""


class HeldLock(Protocol):
    """The lock that keeps all other ResourceManagers from the same engine.

    A process that stood still may have lost it: what it is about to do must be left to the new holder. So confirm the
    lock right before each act upon the apps, after everything else that takes time.

    Example: while a launcher ends what is left of an attempt, its machine is suspended for a minute. A standby starts
    the next attempt meanwhile. As it wakes, the launcher confirms its lock, and starts no second one.

    Attributes:
        standbys: The processes that wait for the lock, as text.
    """

    standbys: tuple[str, ...]

    def is_fresh(self) -> bool:
        """Whether no other process can have taken the lock. Returns at once."""
        ...

    async def confirm(self) -> None:
        """Return if this process has the lock. If it is not fresh, look.

        Raises:
            UnreachableError: Another process has the lock, or it is unknown who has it.
        """
        ...


class NoLock:
    """The HeldLock where no other ResourceManager can use the engine."""

    standbys: tuple[str, ...] = ()

    def is_fresh(self) -> bool:
        """Return True."""
        return True

    async def confirm(self) -> None:
        """Return at once."""


class AppLauncher(Protocol):
    """Starts and ends app masters, while this process has the lock. Call all methods in one event loop.

    A caller waits for the end of a launch before it kills the same app, and the other way round.
    """

    async def launch(self, launch: AmLaunch) -> int:
        """Start an attempt, and return its process id or a number that represents one.

        An earlier attempt of the app is ended first.

        Raises:
            UnreachableError: The engine is unavailable, or the lock is not confirmed; the same attempt is launched
                again later.
            ThemisError: It cannot be started.
        """
        ...

    async def adopt(self, app_id: str, attempt: int, pid: int) -> bool:
        """Adopt an app master that an earlier ResourceManager started. Returns False if it has ended."""
        ...

    def waiting(self, app_id: str) -> str:
        """Why the engine has not started the app's master yet, in its own words. Empty once it has, or if unknown."""
        ...

    def queue(self, app_id: str) -> str:
        """The queue to which an operator moved the app in the engine. Empty if it is where it was submitted."""
        ...

    async def attempts(self, app_id: str, attempt: int) -> EngineAttempts:
        """Return the attempts of an app that this engine has started, at least `attempt`, which we know of.

        Raises ThemisError if the engine does not answer.
        """
        ...

    async def kill(self, app_id: str) -> None:
        """End the app's master and all its tasks. Returns when they have ended. An unknown app is no error.

        Raises:
            UnreachableError: The engine is unavailable, or the lock is not confirmed.
        """
        ...

    async def shutdown(self) -> None:
        """End all app masters and tasks of this ResourceManager's run. Exits are not reported any more.

        Raises:
            ThemisError: Some may run on, since the engine does not answer or the lock is not confirmed.
        """
        ...
