"""The engine of an app master in YARN: it registers the attempt, runs tasks in containers and reports the app's end."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Callable, Mapping
from typing import Any

from am.context import AmContext
from am.page.server import AmPage
from am.page.state import AmPageState
from am.runtimes.port import ContainerRuntime
from am.runtimes.remote.address import own_address
from am.runtimes.remote.hosts import TaskHosts
from am.runtimes.remote.runtime import RemoteRuntime
from am.runtimes.remote.source import ContainerWish
from am.runtimes.yarn_source import YarnLimits, YarnSource
from themis.errors import InputError
from themis.hadoop.am_client import AmClient
from themis.hadoop.jvm import start_jvm
from themis.hadoop.nm_client import NmClient
from themis.hadoop.quoting import command_line
from themis.hadoop.security import task_tokens
from themis.hadoop.values import FinalStatus, LocalResource, ProcessLaunch, ResourceKind, Visibility
from themis.lifecycle import AppState
from themis.python_programs import module_command

_CONTAINER = re.compile(r"container_(?:e\d+_)?(\d+_\d+)_(\d+)_\d+")
# Another application of YARN goes on with an app that is paused.
_STATUS = {
    AppState.FINISHED: FinalStatus.SUCCEEDED,
    AppState.KILLED: FinalStatus.KILLED,
    AppState.PAUSED: FinalStatus.KILLED,
}


class YarnEngine:
    """YARN, for an app master in a container of YARN.

    The ResourceManager's engine of the same name provides the settings as JSON (`THEMIS_ENGINE_SETTINGS`).
    """

    def __init__(self, context: AmContext) -> None:
        self._context = context
        self._settings = context.engine_settings
        self.engine_id, yarn_attempt = attempt_of(os.environ.get("CONTAINER_ID", ""))
        self.attempt = context.attempt + yarn_attempt - 1
        self.page_url = ""
        # YARN stops an app master to preempt it, or after its node was taken for lost. It reports itself what an
        # operator kills.
        self.stop_ends_app = False
        self.runtime: ContainerRuntime
        self._hosts = TaskHosts()
        self._page: AmPage | None = None
        self._am: AmClient
        self._nodes: NmClient
        self._source: YarnSource

    async def start(self, page: Callable[[], AmPageState | None], progress: Callable[[], float]) -> None:
        """Register the attempt, and end what an earlier one left running."""
        host = own_address(self._context.rm_address)
        port = await self._hosts.listen(host)
        self._page = AmPage(page)
        self.page_url = await self._page.start(host)
        registration = await asyncio.to_thread(self._register, host, port)
        self._source = YarnSource(
            self._am,
            self._nodes,
            self._launch,
            YarnLimits(**self._settings["limits"]),
            registration=registration,
            progress=progress,
        )
        self.runtime = RemoteRuntime(
            self._source,
            self._hosts,
            address=f"{host}:{port}",
            run_id=self._context.run_id,
            prefix=f"{self._context.app_id}-{self.attempt}",
            environment={"THEMIS_RUN_ID": self._context.run_id, "THEMIS_APP_ID": self._context.app_id},
            cards_from_zero=self._settings["gpu_plugin"],
        )
        await self._source.alone()

    @property
    def headroom_gpus(self) -> int | None:
        """GPUs that YARN's newest reply allows the app in addition. None before the first."""
        return self._source.headroom_gpus

    async def lost(self) -> None:
        """Wait until YARN has started another attempt or ended the application."""
        await self._source.gone_for_good.wait()

    async def finish(self, state: AppState, diagnostics: str) -> None:
        """Report to YARN how the app ended."""
        await self._source.rest()
        status = _STATUS.get(state, FinalStatus.FAILED)
        await asyncio.to_thread(self._am.unregister, status, diagnostics)

    async def close(self) -> None:
        """End every container of this attempt."""
        await self.runtime.close()
        if self._page is not None:
            await self._page.stop()
        await asyncio.to_thread(self._nodes.close)
        await asyncio.to_thread(self._am.close)

    def _register(self, host: str, port: int) -> Any:
        start_jvm(os.environ)
        self._am, self._nodes = AmClient(), NmClient()
        # By YARN's name of the node: if the app master is silent, the ResourceManager asks the node.
        return self._am.register(os.environ.get("NM_HOST", host), port, self.page_url)

    def _launch(self, wish: ContainerWish) -> ProcessLaunch:
        settings = self._settings
        return ProcessLaunch(
            commands=(command_line(module_command("am.runtimes.remote.task_host", python=settings["python"])),),
            environment={**settings["environment"], **wish.environment},
            environment_templates=settings["templates"],
            resources=tuple(resource_from(each) for each in settings["resources"]),
            tokens=task_tokens(),
        )


def resource_from(fields: Mapping[str, Any]) -> LocalResource:
    """Read a file to copy to containers from the settings' JSON."""
    typed = {"kind": ResourceKind(fields["kind"]), "visibility": Visibility(fields["visibility"])}
    return LocalResource(**{**fields, **typed})


def attempt_of(container_id: str) -> tuple[str, int]:
    """Return YARN's application id and the attempt's number from a container's id."""
    match = _CONTAINER.fullmatch(container_id)
    if match is None:
        raise InputError("an app master of the engine yarn must run in a YARN container", value=container_id)
    return f"application_{match[1]}", int(match[2])
