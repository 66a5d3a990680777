"""The engine of an app master that runs in a Docker container and starts its tasks in further containers."""

from __future__ import annotations

import asyncio
import os
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
    """A Docker engine, for an app master in one of its containers. It uses the engine's mounted socket.

    The settings come from `rm_plugin.engines.docker.task_settings`.
    """

    def __init__(self, context: AmContext) -> None:
        self._context = context
        self.attempt = context.attempt
        self.page_url = self.engine_id = ""
        self.stop_ends_app = True
        self.headroom_gpus = None
        self.runtime: ContainerRuntime
        self._hosts = TaskHosts()
        self._page: AmPage | None = None
        self._docker: DockerHost
        self._watch: ContainerWatch

    async def start(self, page: Callable[[], AmPageState | None], progress: Callable[[], float]) -> None:  # noqa: ARG002
        """Connect to the engine. The ResourceManager has already ended what an earlier attempt left running.

        `progress` is not used, because Docker has no place to report it.
        """
        context = self._context
        self._docker = await asyncio.to_thread(DockerHost.connect)
        host = own_address(context.rm_address)
        port = await self._hosts.listen(host)
        self._page = AmPage(page)
        self.page_url = await self._page.start(host)
        checkpoints = context.folder / "checkpoints"
        # Create the folder here: the engine does not create it, and containers cannot mount a missing folder.
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
            # A container without a cpuset of its own, as an app master's, may run on every core of the machine.
            cores=tuple(sorted(os.sched_getaffinity(0))),
        )

    async def lost(self) -> None:
        """Never return: the ResourceManager kills the container of an attempt that it gives up."""
        await asyncio.Event().wait()

    async def finish(self, state: AppState, diagnostics: str) -> None:
        """Do nothing: the exit code reports how the app ended."""

    async def close(self) -> None:
        """End every container of this attempt."""
        await self.runtime.close()
        if self._page is not None:
            await self._page.stop()
        await self._watch.close()
        await asyncio.to_thread(self._docker.close)
