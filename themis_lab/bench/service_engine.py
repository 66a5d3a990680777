"""An engine for `bench service`: machines that do not exist, and app masters that the benchmark's drivers emulate.

It launches no process. It appends each launch as a line of JSON to the file of a driver, which plays the app master
(`service_app_master`). The rest is the product: the ResourceManager sees an `Engine` like any other.
"""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator, Sequence
from pathlib import Path

from rm_plugin.engines.engine import LocalEngine
from rm_plugin.engines.port import AmExit, AmLaunch, EngineAttempts, HeldLock, MachinesOf, OnAmExit
from rm_plugin.service.store import app_number
from themis.cluster import Cluster, DeviceType, Machine

_SLOTS = (2, 2, 2, 2)
_MACHINES_A_RACK = 16
_DEVICE = "emulated-gpu"


def cluster_of(gpus: int) -> Cluster:
    """Machines of 8 GPUs in 4 slots, 16 a rack; the last machine has the GPUs that remain."""
    sizes = [_SLOTS] * (gpus // sum(_SLOTS)) + [(rest,) for rest in [gpus % sum(_SLOTS)] if rest]
    machines = tuple(
        Machine(machine_id=f"m{index:05d}", rack_id=f"r{index // _MACHINES_A_RACK:04d}", slots=slots, device=_DEVICE)
        for index, slots in enumerate(sizes)
    )
    return Cluster(name=f"bench-{gpus}", machines=machines, devices={_DEVICE: DeviceType(name=_DEVICE, emulated=True)})


def launch_file(folder: Path, driver: int) -> Path:
    """The file of orders to a driver: which app masters to start and to end."""
    return folder / f"launches-{driver}.jsonl"


def orders_in(lines: Sequence[bytes]) -> Iterator[dict[str, str]]:
    """The orders of a launch file, in their order: an app master's environment, or `{"kill": APP}`."""
    for line in lines:
        yield json.loads(line)


class EmulatedEngine(LocalEngine):
    """The machines of a cluster; `drivers` processes share the app masters."""

    def __init__(self, cluster: Cluster, folder: Path, drivers: int) -> None:
        super().__init__(cluster)
        self._folder, self._drivers = folder, drivers

    def launcher(self, run_id: str, on_exit: OnAmExit, machines_of: MachinesOf, lock: HeldLock) -> EmulatedLauncher:
        """Orders app masters from the drivers."""
        return EmulatedLauncher(on_exit, [launch_file(self._folder, driver) for driver in range(self._drivers)])


class EmulatedLauncher:
    """An AppLauncher that orders app masters from drivers. They live until the drivers end."""

    def __init__(self, on_exit: OnAmExit, files: Sequence[Path]) -> None:
        self._on_exit = on_exit
        self._files = files
        self._attempts: dict[str, int] = {}

    async def launch(self, launch: AmLaunch) -> int:
        """Order an attempt. Returns the app's number in place of a process id."""
        self._attempts[launch.app_id] = launch.attempt
        token = self._files[0].parent / f"{launch.app_id}-{launch.attempt}.token"
        token.write_text(launch.token, encoding="utf-8")
        order = {
            **launch.environment,
            "THEMIS_APP_ID": launch.app_id,
            "THEMIS_ATTEMPT": str(launch.attempt),
            "THEMIS_TOKEN_FILE": str(token),
        }
        self._write(launch.app_id, order)
        return app_number(launch.app_id)

    async def adopt(self, app_id: str, attempt: int, pid: int) -> bool:
        """Adopt the app master: drivers outlive the ResourceManager."""
        self._attempts[app_id] = attempt
        return True

    def waiting(self, app_id: str) -> str:
        """Return nothing: a launch is carried out at once."""
        return ""

    def queue(self, app_id: str) -> str:
        """Return nothing: this engine has no queues."""
        return ""

    async def attempts(self, app_id: str, attempt: int) -> EngineAttempts:
        """Return the known attempt: this engine starts none by itself."""
        return EngineAttempts(newest=attempt)

    async def kill(self, app_id: str) -> None:
        """End the app's master."""
        attempt = self._attempts.pop(app_id, None)
        if attempt is not None:
            self._write(app_id, {"kill": app_id})
            exit_code = -int(signal.SIGKILL)
            await self._on_exit(AmExit(app_id=app_id, attempt=attempt, pid=app_number(app_id), exit_code=exit_code))

    async def shutdown(self) -> None:
        """Do nothing: the benchmark ends its drivers itself."""

    def _write(self, app_id: str, order: dict[str, str]) -> None:
        with self._files[app_number(app_id) % len(self._files)].open("ab") as file:
            file.write(json.dumps(order).encode() + b"\n")
