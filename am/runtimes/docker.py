"""An app master in a container of a Docker engine, which runs its tasks in containers beside it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from am.context import AmContext
from am.page.server import AmPage
from am.page.state import AmPageState
from am.runtimes.docker_source import DockerSource, TaskContainers
from am.runtimes.port import ContainerRuntime
from am.runtimes.remote.address import own_address
from am.runtimes.remote.hosts import TaskHosts
from am.runtimes.remote.runtime import RemoteRuntime
from themis.docker_host import APP_LABEL, RUN_LABEL, DockerHost
from themis.docker_watch import ContainerWatch
from themis.lifecycle import AppState


class DockerEngine:
    """A Docker engine as an app master in one of its containers sees it, by the socket that it was given.

    The settings are those that `rm_plugin.engines.docker.task_settings` makes.
    """

    def __init__(self, context: AmContext) -> None:
        self._context = context
        self.attempt = context.attempt
        self.page_url = self.engine_id = ""
        self.runtime: ContainerRuntime
        self._hosts = TaskHosts()
        self._page: AmPage | None = None
        self._docker: DockerHost
        self._watch: ContainerWatch

    async def start(self, page: Callable[[], AmPageState | None], progress: Callable[[], float]) -> None:  # noqa: ARG002
        """Connect to the engine; what an earlier attempt left running the ResourceManager has ended.

        Nobody there would be told of `progress`.
        """
        context = self._context
        self._docker = await asyncio.to_thread(DockerHost.connect)
        host = own_address(context.rm_address)
        port = await self._hosts.listen(host)
        self._page = AmPage(page)
        self.page_url = f"http://{host}:{await self._page.start(host)}/"
        checkpoints = context.folder / "checkpoints"
        # The engine would not make it, and a container cannot be given what is not there.
        checkpoints.mkdir(exist_ok=True)
        self._watch = ContainerWatch(self._docker, {RUN_LABEL: context.run_id, APP_LABEL: context.app_id})
        containers = TaskContainers(
            **context.engine_settings,
            run_id=context.run_id,
            app_id=context.app_id,
            attempt=context.attempt,
            checkpoints=str(checkpoints),
        )
        self.runtime = RemoteRuntime(
            DockerSource(self._docker, self._watch, containers),
            self._hosts,
            address=f"{host}:{port}",
            run_id=context.run_id,
            prefix=f"{context.app_id}-{context.attempt}",
            environment={"THEMIS_RUN_ID": context.run_id, "THEMIS_APP_ID": context.app_id},
            cards_from_zero=True,
        )

    async def lost(self) -> None:
        """Whoever gives an attempt up kills its container."""
        await asyncio.Event().wait()

    async def finish(self, state: AppState, diagnostics: str) -> None:
        """The exit code tells."""

    async def close(self) -> None:
        """End every container of this attempt."""
        await self.runtime.close()
        if self._page is not None:
            await self._page.stop()
        await self._watch.close()
        await asyncio.to_thread(self._docker.close)
