"""The engine `yarn`: machines are YARN's nodes, app masters are YARN applications, and HDFS holds persistent files."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import math
import os
import sys
import time
from collections.abc import Awaitable, Callable, Collection, Mapping
from pathlib import Path
from typing import TypeVar

from msgspec import to_builtins
from msgspec.structs import replace

from rm_plugin.engines.inventory import NodeInventory
from rm_plugin.engines.port import AppLauncher, HeldLock, MachinesOf, OnAmExit
from rm_plugin.engines.remote_logs import fetch_archive, fetch_page
from rm_plugin.engines.shared_folder import SharedFolder
from rm_plugin.engines.yarn_devices import NodeDevices
from rm_plugin.engines.yarn_folder import HdfsFolder
from rm_plugin.engines.yarn_inventory import YarnInventory
from rm_plugin.engines.yarn_launcher import AmTemplate, YarnAppLauncher
from rm_plugin.engines.yarn_package import AT_START, ENV_FOLDER, PACKAGE_FOLDER, archive_resource, ship_package
from rm_plugin.engines.yarn_queue import check_app_queue, check_queue
from themis.cluster import Cluster, DeviceType
from themis.config.cluster_file import device_types
from themis.config.rm_settings import RmSettings, YarnSettings
from themis.errors import InvariantError, UnreachableError
from themis.hadoop.class_path import GPU_VARIABLE
from themis.hadoop.jvm import handed_on, start_jvm
from themis.hadoop.security import KEYTAB_VARIABLE, PRINCIPAL_VARIABLE, current_user
from themis.hadoop.values import LocalResource
from themis.hadoop.webhdfs import open_webhdfs
from themis.hadoop.yarn_client import YarnClient
from themis.queues import AppOwner
from themis.threads import Threads

LOG = logging.getLogger("themis.rm.yarn")

T = TypeVar("T")

_QUEUES_S = 5.0
"""Seconds that a submission waits for YARN's queues."""
_CLOSE_S = 5.0
_QUEUE_CALLS = 4
_LOG_CALLS = 2
_TRY_AGAIN_S = 2.0
_REPORT_S = 60.0
"""Seconds between two log lines about a Hadoop that is still unreachable at the start."""


class YarnEngine:
    """YARN and HDFS, for the ResourceManager.

    Args:
        settings: The ResourceManager's settings.
        overlay: Slots, racks and device types by host name, which node reports do not have. May be None.
    """

    def __init__(self, settings: RmSettings, overlay: Cluster | None) -> None:
        self.poll_s = settings.yarn.poll_s
        self._settings = settings.yarn
        self._admins = settings.admins
        self._environment = _environment(settings.yarn, os.environ)
        self._overlay = overlay
        self._client: YarnClient | None = None
        self._inventory: YarnInventory | None = None
        self._resources: tuple[LocalResource, ...] = ()
        self._storage = settings.yarn.storage.rstrip("/")
        self._run_id = ""
        self._launcher: YarnAppLauncher | None = None
        self._queue_threads = Threads("yarn-queues", _QUEUE_CALLS)
        self._log_threads = Threads("hdfs-logs", _LOG_CALLS)

    async def shared_folder(self) -> SharedFolder:
        """The folder `resource-manager` of the storage on HDFS, by default in the home of the user who logs in."""
        # Hadoop's classes and HdfsCLI read some of these from the process's own environment.
        os.environ.update(self._environment)
        await asyncio.to_thread(start_jvm, self._environment)
        # It logs in, so the user is known from here on.
        self._client = await asyncio.to_thread(YarnClient)
        self._storage = self._storage or f"hdfs:///user/{current_user()}/themis"
        return await _once_reachable(lambda: asyncio.to_thread(self._make_folder))

    async def open(self) -> Cluster:
        """Connect to YARN, and send our packages to HDFS unless they are there. Call `shared_folder` before.

        Waits while HDFS or YARN does not answer, for example because it is still starting.

        Raises:
            InputError: The settings cannot be used.
        """
        client = self._client
        if client is None:
            raise InvariantError("the shared folder comes before the engine")
        if self._settings.as_submitter:
            LOG.warning(
                "yarn.as_submitter: every client of this ResourceManager can run programs as any user for whom %s may "
                "act (hadoop.proxyuser.*)",
                current_user(),
            )
        else:
            LOG.info(
                "app masters and tasks of all users are applications of %s in YARN, and can read each other's files; "
                "`yarn.as_submitter` submits each as its user",
                current_user(),
            )
        if self._settings.queue:
            check_queue(await _once_reachable(lambda: asyncio.to_thread(client.queue, self._settings.queue)))
        devices = node_devices(self._settings, self._overlay)
        self._inventory = YarnInventory(
            client,
            devices,
            self._overlay,
            kept_vcores=self._settings.kept_vcores,
            node_label=self._settings.node_label,
            queues=self._queues,
        )
        self._resources = await _once_reachable(lambda: asyncio.to_thread(self._ship))
        inventory = await _once_reachable(self._inventory.read)
        machines = tuple(node.machine for node in inventory.nodes)
        return Cluster(name="yarn", machines=machines, devices=devices.types)

    def launcher(self, run_id: str, on_exit: OnAmExit, machines_of: MachinesOf, lock: HeldLock) -> AppLauncher:
        """Submits YARN applications."""
        client, inventory = self._opened()
        self._run_id = run_id
        self._launcher = YarnAppLauncher(
            client,
            run_id,
            on_exit,
            template=self._template(run_id),
            settings=self._settings,
            node_addresses=lambda app_id, host: inventory.web_addresses({*machines_of(app_id), host}),
            lock=lock,
            admins=self._admins,
        )
        return self._launcher

    def inventory(self) -> NodeInventory:
        """YARN's node reports."""
        return self._opened()[1]

    async def check_owner(self, owner: AppOwner) -> None:
        """Raise InputError if YARN has no such queue, or it accepts no apps. The settings may name one for all apps."""
        if self._settings.queue:
            return
        try:
            async with asyncio.timeout(_QUEUES_S):
                reports = await self._queue_threads.run(self._opened()[0].queues)
        except (UnreachableError, TimeoutError):
            return
        check_app_queue(owner.queue or "default", reports)

    async def fetch_logs(self, app_id: str, page_url: str, folder: Path) -> None:
        """From the app master's page while it lives, from HDFS when the app is over."""
        if not page_url or not await fetch_page(page_url, folder):
            await self._log_threads.run(fetch_archive, self._app_storage(app_id), folder)

    async def close(self) -> None:
        """Disconnect; applications live on. Waits for no call that does not return."""
        for part in (self._launcher, self._inventory, self._log_threads):
            if part is not None:
                part.close()
        if self._client is not None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_CLOSE_S):
                    await self._queue_threads.run(self._client.close)
        self._queue_threads.close()

    # ---- inside ----

    def _queues(self) -> Collection[str]:
        return () if self._launcher is None else self._launcher.queues()

    def _opened(self) -> tuple[YarnClient, YarnInventory]:
        if self._client is None or self._inventory is None:
            raise InvariantError("the engine is not open")
        return self._client, self._inventory

    def _make_folder(self) -> SharedFolder:
        return HdfsFolder(*open_webhdfs(f"{self._storage}/resource-manager", rule=AT_START))

    def _ship(self) -> tuple[LocalResource, ...]:
        resources = [ship_package(f"{self._storage}/packages")] if self._settings.ship else []
        if self._settings.archive:
            resources.append(archive_resource(self._settings.archive))
        return tuple(resources)

    def _app_storage(self, app_id: str) -> str:
        return f"{self._storage}/{self._run_id}/apps/{app_id}"

    def _template(self, run_id: str) -> AmTemplate:
        settings = self._settings
        python = settings.python or ("./" + ENV_FOLDER + "/bin/python" if settings.archive else sys.executable)
        ours = handed_on(self._environment) if settings.same_paths else {}
        name = self._environment.get(GPU_VARIABLE)
        gpus = {GPU_VARIABLE: name} if name else {}
        environment = {**ours, **gpus, **_hdfs_user(self._environment), **settings.environment}
        templates = {"PYTHONPATH": "{{PWD}}/" + PACKAGE_FOLDER} if settings.ship else {}
        limits = {
            "heartbeat_s": settings.heartbeat_s,
            "pin_timeout_s": settings.pin_timeout_s,
            "memory_mb": settings.task_memory_mb,
        }
        engine_settings = {
            "python": python,
            "environment": environment,
            "templates": templates,
            "limits": limits,
            "gpu_plugin": settings.gpu_plugin,
            "resources": [to_builtins(resource) for resource in self._resources],
        }
        return AmTemplate(
            python=python,
            environment={
                **environment,
                "THEMIS_ENGINE": "yarn",
                "THEMIS_RUN_ID": run_id,
                "THEMIS_ENGINE_SETTINGS": json.dumps(engine_settings),
            },
            templates=templates,
            resources=self._resources,
            storage_of=self._app_storage,
        )


async def _once_reachable(work: Callable[[], Awaitable[T]]) -> T:
    """Return the result of work; tries again until Hadoop's daemons can be reached."""
    reported_s = -math.inf
    while True:
        try:
            return await work()
        except UnreachableError as error:
            if time.monotonic() - reported_s >= _REPORT_S:
                LOG.warning("waiting for Hadoop: %s", error)
                reported_s = time.monotonic()
            await asyncio.sleep(_TRY_AGAIN_S)


def node_devices(settings: YarnSettings, overlay: Cluster | None) -> NodeDevices:
    """The device types of the settings and the cluster file. A default type that neither declares is a GPU."""
    declared = {
        name: replace(device, emulated=device.emulated or (settings.emulated and device.is_gpu))
        for name, device in device_types(settings.devices).items()
    }
    default = settings.device or ("" if declared else "gpu")
    types = {**declared, **(overlay.devices if overlay else {})}
    if default and default not in types:
        types[default] = DeviceType(name=default, emulated=settings.emulated)
    return NodeDevices(types, default=default, attribute=settings.device_attribute)


def _environment(settings: YarnSettings, environment: Mapping[str, str]) -> dict[str, str]:
    """The environment of this process with what the settings say of Hadoop."""
    ours = {
        "HADOOP_CONF_DIR": str(Path(settings.conf_dir).absolute()) if settings.conf_dir else "",
        "HADOOP_USER_NAME": settings.user,
        KEYTAB_VARIABLE: settings.keytab,
        PRINCIPAL_VARIABLE: settings.principal,
        GPU_VARIABLE: settings.gpu_resource,
    }
    return {**environment, **{name: value for name, value in ours.items() if value}}


def _hdfs_user(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the HDFS user of app masters and tasks without security: the owner of the files there."""
    user = environment.get("HADOOP_USER_NAME")
    return {"HADOOP_USER_NAME": user} if user else {}
