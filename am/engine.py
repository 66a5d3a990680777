"""The AmEngine port: the connection of an app master to the engine that started it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from am.context import AmContext
from am.runtimes.local import LocalRuntime
from am.runtimes.port import ContainerRuntime
from themis.errors import UnknownNameError
from themis.lifecycle import AppState

if TYPE_CHECKING:
    from am.page.state import AmPageState

ENGINES = ("local", "docker", "yarn")


class AmEngine(Protocol):
    """An engine as its app master sees it. All methods belong to one event loop.

    Attributes:
        attempt: The number of this attempt, as the engine counts.
        runtime: The runtime of the tasks. Set once `start` has returned.
        page_url: The URL of the app master's page. Empty for none.
        engine_id: The engine's id of the app. May be empty.
        stop_ends_app: Whether SIGTERM to the app master ends the app. Otherwise it ends this attempt only: the engine
            has a reason of its own, and starts another attempt.
    """

    attempt: int
    runtime: ContainerRuntime
    page_url: str
    engine_id: str
    stop_ends_app: bool

    async def start(self, page: Callable[[], AmPageState | None], progress: Callable[[], float]) -> None:
        """Register the app master with the engine.

        Args:
            page: Returns the state that its page shows, or None before it is known.
            progress: Returns the completed share of the search, 0 to 1.
        """
        ...

    @property
    def headroom_gpus(self) -> int | None:
        """GPUs that the engine would grant the app in addition, by its own word. None if it does not say."""
        ...

    async def lost(self) -> None:
        """Wait until the engine has given this attempt up. The attempt must then end without further actions."""
        ...

    async def finish(self, state: AppState, diagnostics: str) -> None:
        """Report that the app has ended with all its tasks, so that the engine starts no further attempt."""
        ...

    async def close(self) -> None:
        """End all tasks that still run."""
        ...


class LocalEngine:
    """App masters that are processes of the ResourceManager's own machine: it watches them itself."""

    def __init__(self, context: AmContext) -> None:
        self.attempt = context.attempt
        self.runtime: ContainerRuntime = LocalRuntime()
        self.page_url = self.engine_id = ""
        self.stop_ends_app = True
        self.headroom_gpus = None

    async def start(self, page: Callable[[], AmPageState | None], progress: Callable[[], float]) -> None:
        """Do nothing: this engine needs no registration."""

    async def lost(self) -> None:
        """Never return: the ResourceManager kills the process of an attempt that it gives up."""
        await asyncio.Event().wait()

    async def finish(self, state: AppState, diagnostics: str) -> None:
        """Do nothing: the exit code reports how the app ended."""

    async def close(self) -> None:
        """Kill every task that still runs."""
        await self.runtime.close()


def open_engine(context: AmContext) -> AmEngine:
    """Return the engine that the context names. Raises UnknownNameError for an unknown one."""
    # Import on demand: one engine needs a JVM, another a library that is not always installed.
    if context.engine == "yarn":
        from am.runtimes.yarn import YarnEngine

        return YarnEngine(context)
    if context.engine == "docker":
        from am.runtimes.docker import DockerEngine

        return DockerEngine(context)
    if context.engine != "local":
        raise UnknownNameError("engine", context.engine, ENGINES)
    return LocalEngine(context)
