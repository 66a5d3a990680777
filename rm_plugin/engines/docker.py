"""The engine `docker`: app masters and tasks are containers of one Docker engine, on the machines of a cluster file."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import json
import logging
import os
from pathlib import Path
from typing import Any

from rm_plugin.engines.cards import machine_with_cards
from rm_plugin.engines.docker_launcher import AmContainers, DockerAppLauncher
from rm_plugin.engines.inventory import FixedInventory, NodeInventory
from rm_plugin.engines.port import AppLauncher, HeldLock, MachinesOf, OnAmExit
from rm_plugin.engines.shared_folder import SharedFolder, shared_by_files
from themis.cluster import Cluster
from themis.config.rm_settings import DockerSettings, RmSettings
from themis.docker_host import CONTAINER_SOCKET, DockerHost
from themis.errors import InputError, InvariantError
from themis.queues import AppOwner

LOG = logging.getLogger("themis.rm.docker")

_NAME_DIGITS = 8
_UNIX = "unix://"


class DockerEngine:
    """One Docker engine, for the ResourceManager.

    Args:
        settings: The ResourceManager's settings. Containers must reach its address.
        cluster: The machines. Only the machine of the engine may have cards.

    Raises:
        InputError: The settings or machines cannot be used.
    """

    poll_s = 60.0

    def __init__(self, settings: RmSettings, cluster: Cluster) -> None:
        self._url = settings.docker.host or os.environ.get("DOCKER_HOST", "")
        _check_reachable(settings, self._url)
        self._settings = settings.docker
        self._standby_folder = settings.standby.folder
        self._cluster = cluster
        with_cards = machine_with_cards(cluster)
        self._cards = () if with_cards is None else (with_cards.machine_id,)
        self._socket = socket_to_mount(settings.docker.socket, self._url)
        self._host: DockerHost | None = None

    async def shared_folder(self) -> SharedFolder | None:
        """The folder of the settings. Without one, a lock of the state store keeps other ResourceManagers away."""
        return shared_by_files(self._standby_folder)

    async def open(self) -> Cluster:
        """Connect; the cluster is that of the file."""
        self._host = await asyncio.to_thread(DockerHost.connect, self._url)
        await self._host.threads.run(self._host.need_image, self._settings.image)
        LOG.info(
            "app masters and tasks of all users run as %s in their containers, and app masters can use this Docker "
            "engine: do not let users who do not trust each other share it",
            self._user,
        )
        return self._cluster

    def launcher(self, run_id: str, on_exit: OnAmExit, machines_of: MachinesOf, lock: HeldLock) -> AppLauncher:
        """Starts containers."""
        if self._host is None:
            raise InvariantError("the engine is not open")
        return DockerAppLauncher(self._host, run_id, on_exit, self._containers(run_id), lock)

    def inventory(self) -> NodeInventory:
        """The cluster, which never changes."""
        return FixedInventory(self._cluster)

    async def check_owner(self, owner: AppOwner) -> None:
        """Accept any user and queue: this engine has none."""

    async def fetch_logs(self, app_id: str, page_url: str, folder: Path) -> None:
        """Do nothing: app masters write the logs to the app's own folder."""

    async def close(self) -> None:
        """Disconnect. Containers continue to run."""
        if self._host is not None:
            await asyncio.to_thread(self._host.close)

    @property
    def _user(self) -> str:
        """UID:GID in containers."""
        return self._settings.user or f"{os.getuid()}:{os.getgid()}"

    def _containers(self, run_id: str) -> AmContainers:
        settings = self._settings
        suffix = run_id[:_NAME_DIGITS]
        network = settings.network or f"themis-{suffix}"
        user = self._user
        tasks = task_settings(settings, network=network, user=user, name_suffix=suffix, cards=self._cards)
        environment = {
            **settings.environment,
            "THEMIS_ENGINE": "docker",
            "THEMIS_RUN_ID": run_id,
            "THEMIS_ENGINE_SETTINGS": json.dumps(tasks),
        }
        if not self._socket:
            environment["DOCKER_HOST"] = self._url
        return AmContainers(
            image=settings.image,
            python=settings.python,
            network=network,
            user=user,
            groups=_groups_of(self._socket),
            socket=self._socket,
            volumes=settings.volumes,
            memory_mb=settings.am_memory_mb,
            environment=environment,
            name_suffix=suffix,
        )


def task_settings(
    settings: DockerSettings, *, network: str, user: str, name_suffix: str, cards: tuple[str, ...]
) -> dict[str, Any]:
    """Return the settings with which an app master starts its tasks' containers. `am.runtimes.docker` reads them."""
    return {
        "image": settings.image,
        "python": settings.python,
        "network": network,
        "user": user,
        "volumes": settings.volumes,
        "environment": settings.environment,
        "memory_mb": settings.task_memory_mb,
        "shm_mb": settings.task_shm_mb,
        "runtime": settings.runtime,
        "machines_with_cards": list(cards),
        "name_suffix": name_suffix,
    }


def socket_to_mount(socket: str, url: str) -> str:
    """The path of the engine's socket on its own machine; empty where app masters reach it by its URL."""
    if socket or url.startswith("tcp://"):
        return socket
    if url.startswith(_UNIX):
        return url.removeprefix(_UNIX)
    if not url:
        return CONTAINER_SOCKET
    raise InputError(
        "app masters cannot use this kind of Docker URL",
        value=url,
        remedy="use unix:// or tcp://, or set docker.socket to the socket's path on the engine's machine",
    )


def _check_reachable(settings: RmSettings, url: str) -> None:
    if settings.advertise:
        return
    if url and not url.startswith(_UNIX):
        raise InputError(
            "containers of another machine need the address of the ResourceManager",
            value=url,
            remedy="set `advertise` to this machine's name or address",
        )
    host = settings.listen.rpartition(":")[0].strip("[]")
    loopback = host == "localhost"
    with contextlib.suppress(ValueError):
        loopback = ipaddress.ip_address(host).is_loopback
    if loopback:
        raise InputError(
            "containers cannot reach a ResourceManager that listens on loopback",
            value=settings.listen,
            remedy="set `listen` to the address of Docker's own bridge, usually 172.17.0.1:PORT, or to 0.0.0.0:PORT",
        )


def _groups_of(socket: str) -> tuple[int, ...]:
    """The group that may use the socket, where it is of this machine."""
    try:
        return (Path(socket).stat().st_gid,) if socket else ()
    except OSError:
        return ()
