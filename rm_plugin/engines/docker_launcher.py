"""Run app masters as containers of a Docker engine. Labels identify the containers after a restart.

App masters outlive the ResourceManager. Tasks end by themselves if their app master stays unreachable. This launcher
also removes them when it removes the app master.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Mapping
from pathlib import Path

from rm_plugin.engines.port import AmExit, AmLaunch, EngineAttempts, HeldLock, NoLock, OnAmExit
from themis.docker_host import (
    APP_LABEL,
    APP_MASTER,
    ATTEMPT_LABEL,
    CONTAINER_SOCKET,
    ROLE_LABEL,
    RUN_LABEL,
    Bind,
    ContainerEnd,
    ContainerSpec,
    DockerError,
    DockerHost,
)
from themis.docker_watch import ContainerWatch
from themis.errors import UnreachableError
from themis.files import last_line
from themis.python_programs import module_command
from themis.values import Value, repr_without

LOG = logging.getLogger("themis.rm.docker")

TOKEN_FILE = ".am-token"
"""The app master reads the token from this file in its folder, and removes it before a task can start."""
STOP_LIMIT_S = 60.0
"""Seconds that a stop waits until all containers are removed. After that, it leaves and names the others."""
_AGAIN_S = 1.0
_EVERYWHERE = ("0.0.0.0", "::", "[::]", "")
# Its log lies where that of a process would: the engine's own goes with the container.
_INTO_LOG = ("/bin/sh", "-c", 'exec "$@" >>"$0" 2>&1')


class AmContainers(Value, frozen=True, kw_only=True):
    """The common settings of all app masters' containers of a run.

    Attributes:
        groups: Numbers of further groups of the user, such as the socket's.
        socket: The path of the engine's socket on its machine. Empty for none.
        volumes: Further binds in Docker's notation, for example for apps' checkpoints.
        environment: Variables in addition to those of the launch.
        name_suffix: Suffix of containers' names. Two ResourceManagers on one engine may use the same app ids.
    """

    image: str
    python: str
    network: str
    user: str
    groups: tuple[int, ...]
    socket: str
    volumes: tuple[str, ...]
    memory_mb: int
    environment: Mapping[str, str]
    name_suffix: str

    __repr__ = repr_without("environment")

    def spec(self, launch: AmLaunch, labels: Mapping[str, str], gateway: str) -> ContainerSpec:
        """The container of an attempt; `gateway` is where it reaches a ResourceManager that listens everywhere."""
        folder = str(launch.working_dir)
        host, _, port = launch.environment["THEMIS_RM_ADDRESS"].rpartition(":")
        ours = {
            "THEMIS_RM_ADDRESS": f"{gateway if host in _EVERYWHERE else host}:{port}",
            "THEMIS_APP_ID": launch.app_id,
            "THEMIS_ATTEMPT": str(launch.attempt),
            "THEMIS_TOKEN_FILE": f"{folder}/{TOKEN_FILE}",
        }
        binds = [Bind(source=folder, target=folder)]
        if self.socket:
            binds.append(Bind(source=self.socket, target=CONTAINER_SOCKET))
        return ContainerSpec(
            name=f"themis-{launch.app_id}-{launch.attempt}-{self.name_suffix}",
            image=self.image,
            command=(*_INTO_LOG, _log_name(launch.attempt), *module_command("am.main", python=self.python)),
            environment={"HOME": folder, **self.environment, **launch.environment, **ours},
            labels=labels,
            network=self.network,
            working_dir=folder,
            user=self.user,
            groups=self.groups,
            binds=tuple(binds),
            volumes=self.volumes,
            memory_mb=self.memory_mb,
        )


class DockerAppLauncher:
    """An AppLauncher over one Docker engine. Calls to the engine run in threads, everything else in one event loop.

    Args:
        host: The engine.
        run_id: Labels all containers of this ResourceManager's run, across its restarts.
        on_exit: Called for each app master that ended, after all containers of its app have ended.
        containers: Common settings of app masters' containers.
        lock: Confirmed before each start and each kill.
    """

    def __init__(
        self,
        host: DockerHost,
        run_id: str,
        on_exit: OnAmExit,
        containers: AmContainers,
        lock: HeldLock | None = None,
    ) -> None:
        self._host = host
        self._lock = lock or NoLock()
        self._run = {RUN_LABEL: run_id}
        self._on_exit = on_exit
        self._containers = containers
        self._watch: ContainerWatch | None = None
        self._watchers: set[asyncio.Task[None]] = set()
        self._gone: dict[str, asyncio.Event] = {}
        self._closed = False

    async def launch(self, launch: AmLaunch) -> int:
        """Start an attempt. Returns its process id on the engine's machine. Raises DockerError."""
        await self.kill(launch.app_id)
        # Check each time, because an operator may have removed the empty network.
        gateway = await self._host.threads.run(self._host.ensure_network, self._containers.network, self._run)
        await self._lock.confirm()
        try:
            launch.working_dir.mkdir(parents=True, exist_ok=True)
            _write_private(launch.working_dir / TOKEN_FILE, launch.token)
        except OSError as error:
            raise DockerError("the app's folder cannot be written", value=str(error)) from error
        labels = {**self._app_master(launch.app_id), ATTEMPT_LABEL: str(launch.attempt)}
        container = await self._host.threads.run(self._host.start, self._containers.spec(launch, labels, gateway))
        log = launch.working_dir / _log_name(launch.attempt)
        self._follow(launch.app_id, launch.attempt, container.pid, container.container_id, log)
        return container.pid

    async def adopt(self, app_id: str, attempt: int, pid: int) -> bool:
        """Follow the container that an earlier ResourceManager of this run started."""
        labels = {**self._app_master(app_id), ATTEMPT_LABEL: str(attempt)}
        found = await self._host.threads.run(self._host.find, labels)
        for each in found:
            if each.running:
                self._follow(app_id, attempt, pid, each.container_id)
                return True
        await self._remove_all(self._app(app_id))
        return False

    def waiting(self, app_id: str) -> str:
        """Return nothing: an app master that is launched runs."""
        return ""

    def queue(self, app_id: str) -> str:
        """Return nothing: this engine has no queues."""
        return ""

    async def attempts(self, app_id: str, attempt: int) -> EngineAttempts:
        """Return the known attempt: this engine starts none by itself."""
        return EngineAttempts(newest=attempt)

    async def kill(self, app_id: str) -> None:
        """Kill and remove every container of the app. Its exit is reported later."""
        await self._kill_masters(self._app_master(app_id))
        if gone := self._gone.get(app_id):
            await gone.wait()
        else:
            await self._remove_all(self._app(app_id))

    async def shutdown(self) -> None:
        """Kill and remove every container of this run, then its network, but wait for at most `STOP_LIMIT_S`."""
        self._closed = True
        try:
            async with asyncio.timeout(STOP_LIMIT_S):
                await self._end_all()
        except TimeoutError:
            # The followers go on: another call waits for them again.
            left = ", ".join(sorted(self._gone)) or "what is left of apps that have ended"
            raise UnreachableError("not all containers could be removed", value=left) from None
        if self._watch is not None:
            await self._watch.close()

    async def _end_all(self) -> None:
        await self._kill_masters({**self._run, ROLE_LABEL: APP_MASTER})
        await asyncio.shield(asyncio.gather(*self._watchers))
        await self._remove_all(self._run)
        try:
            await self._host.threads.run(self._host.remove_networks, self._run)
        except DockerError as error:
            # A foreign container uses the network.
            LOG.warning("%s", error)

    def _app(self, app_id: str) -> dict[str, str]:
        return {**self._run, APP_LABEL: app_id}

    def _app_master(self, app_id: str) -> dict[str, str]:
        return {**self._app(app_id), ROLE_LABEL: APP_MASTER}

    async def _kill_masters(self, labels: Mapping[str, str]) -> None:
        # Only kill them here. Their followers read how they ended, and then remove them.
        for each in await self._host.threads.run(self._host.find, labels):
            await self._lock.confirm()
            await self._host.threads.run(self._host.kill, each.container_id)

    async def _remove_all(self, labels: Mapping[str, str]) -> None:
        await self._lock.confirm()
        await self._host.threads.run(self._host.remove_all, labels)

    async def _remove_surely(self, labels: Mapping[str, str]) -> None:
        """Try again until it succeeds, because containers must not count as gone while they still run."""
        while True:
            try:
                return await self._remove_all(labels)
            except (DockerError, UnreachableError) as error:
                LOG.warning("%s", error)
                if self._closed and isinstance(error, UnreachableError):
                    return None
                await asyncio.sleep(_AGAIN_S)

    def _follow(self, app_id: str, attempt: int, pid: int, container_id: str, log: Path | None = None) -> None:
        if self._watch is None:
            self._watch = ContainerWatch(self._host, {**self._run, ROLE_LABEL: APP_MASTER})
        self._gone[app_id] = asyncio.Event()
        work = self._until_exit(app_id, attempt, pid, self._watch.follow(container_id), log)
        watcher = asyncio.get_running_loop().create_task(work)
        self._watchers.add(watcher)
        watcher.add_done_callback(self._watchers.discard)

    async def _until_exit(
        self, app_id: str, attempt: int, pid: int, ending: Awaitable[ContainerEnd], log: Path | None
    ) -> None:
        code = (await ending).exit_code
        await self._remove_surely(self._app(app_id))
        self._gone.pop(app_id).set()
        if not self._closed:
            words = last_line(log) if log is not None and code else ""
            await self._on_exit(AmExit(app_id=app_id, attempt=attempt, pid=pid, exit_code=code, last_words=words))


def _log_name(attempt: int) -> str:
    return f"am-{attempt}.log"


def _write_private(path: Path, text: str) -> None:
    """Write a new file that its owner alone can read: also if a file or a link of a task is in its place."""
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600), "w") as file:
        file.write(text)
