"""The Engine port: everything that the ResourceManager needs from the system that runs apps.

That system is YARN (`yarn.py`), Docker (`docker.py`), or this machine, which runs apps as processes (`LocalEngine`).
"""

from __future__ import annotations

import asyncio
import logging
import os
from pathlib import Path
from typing import Protocol

from rm_plugin.engines.cards import check_cards, machine_with_cards, read_cards
from rm_plugin.engines.inventory import FixedInventory, NodeInventory
from rm_plugin.engines.local import LocalAppLauncher
from rm_plugin.engines.port import AppLauncher, HeldLock, MachinesOf, OnAmExit
from rm_plugin.engines.shared_folder import SharedFolder, shared_by_files
from rm_plugin.engines.submitters import Submitters
from rm_plugin.engines.task_python import task_python_warning
from themis.cluster import Cluster
from themis.config.cluster_file import load_cluster
from themis.config.examples import ExampleKind, file_or_example
from themis.config.rm_settings import RmSettings
from themis.control_groups import enable_limits
from themis.errors import InputError
from themis.queues import AppOwner

LOG = logging.getLogger("themis.rm")


class Engine(Protocol):
    """Provides machines, starts app masters and fetches logs. Call all methods in one event loop.

    Attributes:
        poll_s: Seconds between two reads of its inventory.
    """

    poll_s: float

    async def shared_folder(self) -> SharedFolder | None:
        """Return the folder that all ResourceManagers of this engine share, for their lock. None if there is none."""
        ...

    async def open(self) -> Cluster:
        """Connect, and return the machines. Raises ThemisError if this fails.

        Call it only while no other ResourceManager uses the engine.
        """
        ...

    def launcher(self, run_id: str, on_exit: OnAmExit, machines_of: MachinesOf, lock: HeldLock) -> AppLauncher:
        """Return the launcher of this run's app masters. It acts only while this process has the lock."""
        ...

    def inventory(self) -> NodeInventory:
        """The inventory of the machines."""
        ...

    async def check_owner(self, owner: AppOwner) -> None:
        """Raise InputError if no app of this user can run in this queue. Return if the engine does not answer."""
        ...

    async def fetch_logs(self, app_id: str, page_url: str, folder: Path) -> None:
        """Copy the app's present logs into its folder on this machine, with the layout of the local engine.

        Raises:
            ThemisError: The logs cannot be read or written at the moment.
        """
        ...

    async def close(self) -> None:
        """Disconnect."""
        ...


class LocalEngine:
    """Processes of this machine, on the machines of a cluster file."""

    poll_s = 60.0

    def __init__(
        self, cluster: Cluster, standby_folder: Path | None = None, submitters: Submitters | None = None
    ) -> None:
        self._cluster = cluster
        self._standby_folder = standby_folder
        self._submitters = submitters or Submitters()

    async def shared_folder(self) -> SharedFolder | None:
        """The folder of the settings. Without one, a lock of the state store keeps other ResourceManagers away."""
        return shared_by_files(self._standby_folder)

    async def open(self) -> Cluster:
        """The cluster of the file. Raises InputError if it has cards that this machine does not have."""
        if with_cards := machine_with_cards(self._cluster):
            check_cards(with_cards, await asyncio.to_thread(read_cards))
        limits = "limit the memory and cores of tasks" if enable_limits() else "set no limits of memory and cores"
        LOG.info("%s; control groups %s", self._submitters.describe(), limits)
        if warning := task_python_warning(os.environ):
            LOG.warning("%s", warning)
        return self._cluster

    def launcher(self, run_id: str, on_exit: OnAmExit, machines_of: MachinesOf, lock: HeldLock) -> AppLauncher:
        """Starts processes."""
        return LocalAppLauncher(run_id, on_exit, lock, submitters=self._submitters)

    def inventory(self) -> NodeInventory:
        """The cluster, which never changes."""
        return FixedInventory(self._cluster)

    async def check_owner(self, owner: AppOwner) -> None:
        """Check that apps of the user can run; the engine has no queues."""
        # In a thread: accounts may come from a directory service.
        await asyncio.to_thread(self._submitters.check, owner.user)

    async def fetch_logs(self, app_id: str, page_url: str, folder: Path) -> None:
        """Do nothing: the logs are already there."""

    async def close(self) -> None:
        """Do nothing."""


def open_engine(settings: RmSettings) -> Engine:
    """Return the engine of the settings, not yet connected. Raises InputError if it cannot use them."""
    cluster = None if settings.cluster is None else load_cluster(file_or_example(settings.cluster, ExampleKind.CLUSTER))
    # Import on demand: one engine needs a JVM, another a library that is not always installed.
    if settings.engine == "yarn":
        try:
            from rm_plugin.engines.yarn import YarnEngine
        except ModuleNotFoundError as error:
            remedy = "pip install 'themis-scheduler[hdfs,yarn]'"
            raise InputError("the engine yarn needs Hadoop's clients", value=error.name, remedy=remedy) from error

        return YarnEngine(settings, cluster)
    if cluster is None:
        raise InputError(f"the engine {settings.engine} needs a cluster file", remedy="set `cluster`")
    if settings.engine == "docker":
        from rm_plugin.engines.docker import DockerEngine

        return DockerEngine(settings, cluster)
    return LocalEngine(cluster, settings.standby.folder, Submitters.of(settings))
