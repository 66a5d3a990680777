"""The AmEngine port: what an app master is to the engine that started it, beside the tasks that it runs there."""

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
        attempt: Which attempt of the app this is, as the engine counts.
        runtime: Where tasks run, once `start` has returned.
        page_url: Where the app master's page is; empty for none.
        engine_id: What the engine calls the app; may be empty.
    """

    attempt: int
    runtime: ContainerRuntime
    page_url: str
    engine_id: str

    async def start(self, page: Callable[[], AmPageState | None], progress: Callable[[], float]) -> None:
        """Make it known that the app master is there.

        Args:
            page: What its page shows; None while it knows nothing.
            progress: Share of the search that is done, 0 to 1.
        """
        ...

    async def lost(self) -> None:
        """Return when the engine has given this attempt up: it must end, and touch nothing any more."""
        ...

    async def finish(self, state: AppState, diagnostics: str) -> None:
        """The app is over, and nothing of it runs any more: the engine will not start another attempt."""
        ...

    async def close(self) -> None:
        """End whatever still runs."""
        ...


class LocalEngine:
    """App masters that are processes of the ResourceManager's own machine: it watches them itself."""

    def __init__(self, context: AmContext) -> None:
        self.attempt = context.attempt
        self.runtime: ContainerRuntime = LocalRuntime()
        self.page_url = self.engine_id = ""

    async def start(self, page: Callable[[], AmPageState | None], progress: Callable[[], float]) -> None:
        """Nobody needs to be told."""

    async def lost(self) -> None:
        """It kills, and does not tell."""
        await asyncio.Event().wait()

    async def finish(self, state: AppState, diagnostics: str) -> None:
        """The exit code tells."""

    async def close(self) -> None:
        """Kill every task that still runs."""
        await self.runtime.close()


def open_engine(context: AmContext) -> AmEngine:
    """The engine that the context names; an unknown one raises UnknownNameError."""
    # Each is imported when it is needed: one needs a JVM, another a library that is not installed everywhere.
    if context.engine == "yarn":
        from am.runtimes.yarn import YarnEngine

        return YarnEngine(context)
    if context.engine == "docker":
        from am.runtimes.docker import DockerEngine

        return DockerEngine(context)
    if context.engine != "local":
        raise UnknownNameError("engine", context.engine, ENGINES)
    return LocalEngine(context)
