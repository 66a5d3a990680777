"""The Engine port: everything that the ResourceManager needs of the place where apps run."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from rm_plugin.engines.inventory import FixedInventory, NodeInventory
from rm_plugin.engines.local import LocalAppLauncher
from rm_plugin.engines.port import AppLauncher, MachinesOf, OnAmExit
from themis.cluster import Cluster
from themis.config.cluster_file import load_cluster
from themis.config.examples import ExampleKind, file_or_example
from themis.config.rm_settings import RmSettings
from themis.errors import InputError


class Engine(Protocol):
    """Where machines come from, app masters are started and logs lie. All methods belong to one event loop.

    Attributes:
        poll_s: How often its inventory is worth reading.
    """

    poll_s: float

    async def open(self) -> Cluster:
        """Connect; returns the machines that there are. Raises ThemisError when it cannot."""
        ...

    def launcher(self, run_id: str, on_exit: OnAmExit, machines_of: MachinesOf) -> AppLauncher:
        """What starts app masters of this run."""
        ...

    def inventory(self) -> NodeInventory:
        """What tells the machines from now on."""
        ...

    async def fetch_logs(self, app_id: str, page_url: str, folder: Path) -> None:
        """Bring what the app logged so far into its folder on this machine, as the local engine would have it there.

        What cannot be had at the moment is left out.
        """
        ...

    async def close(self) -> None:
        """Disconnect."""
        ...


class LocalEngine:
    """Processes of this machine, on the machines of a cluster file."""

    poll_s = 60.0

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    async def open(self) -> Cluster:
        """The cluster of the file."""
        return self._cluster

    def launcher(self, run_id: str, on_exit: OnAmExit, machines_of: MachinesOf) -> AppLauncher:
        """Starts processes."""
        return LocalAppLauncher(run_id, on_exit)

    def inventory(self) -> NodeInventory:
        """The cluster, which never changes."""
        return FixedInventory(self._cluster)

    async def fetch_logs(self, app_id: str, page_url: str, folder: Path) -> None:
        """They are there."""

    async def close(self) -> None:
        """Nothing to do."""


def open_engine(settings: RmSettings) -> Engine:
    """The engine of the settings; nothing is connected yet. Raises InputError for settings that it cannot use."""
    cluster = None if settings.cluster is None else load_cluster(file_or_example(settings.cluster, ExampleKind.CLUSTER))
    # Each is imported when it is needed: one needs a JVM, another a library that is not installed everywhere.
    if settings.engine == "yarn":
        from rm_plugin.engines.yarn import YarnEngine

        return YarnEngine(settings, cluster)
    if cluster is None:
        raise InputError(f"the engine {settings.engine} needs a cluster file", remedy="set `cluster`")
    if settings.engine == "docker":
        from rm_plugin.engines.docker import DockerEngine

        return DockerEngine(settings, cluster)
    return LocalEngine(cluster)
