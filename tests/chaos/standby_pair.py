"""Two ResourceManagers that share a folder: one is active, the other waits to take over."""

from __future__ import annotations

import contextlib
import json
import subprocess
import time
import uuid
from pathlib import Path

from embedded_service import EmbeddedService
from free_ports import free_port

from rm_plugin.engines.shared_folder import FileSystemFolder
from rm_plugin.service.shared_log import SharedLog
from rm_plugin.service.shared_store import SharedStore

HOST = "127.0.0.1"
ACTIVE_S = 60.0
"""How long the question for the active one waits for a take-over to end."""


class StandbyPair:
    """Has the parts of an EmbeddedService that a chaos run with kills of ResourceManagers needs."""

    on_yarn = False
    has_own_disk = False

    def __init__(self, folder: Path) -> None:
        self.run_id = uuid.uuid4().hex
        self.state = folder / "shared"
        self._write_mark(folder / "begin" / "rm.sqlite")
        addresses = [f"{HOST}:{free_port(HOST)}" for _ in range(2)]
        self._address = ",".join(addresses)
        standby = {"enabled": True, "folder": str(self.state), "addresses": addresses}
        self.services = []
        for address in addresses:
            place = folder / address.rpartition(":")[2]
            place.mkdir()
            # App masters need some seconds to leave a ResourceManager that stands still.
            settings = {"standby": standby, "listen": address, "am_expiry_s": 20}
            self.services.append(EmbeddedService(place, settings, options=["--standby"], run_id=self.run_id))

    def _write_mark(self, path: Path) -> None:
        """Write the mark of the run into the shared state.

        In the environment of a standby it would be the mark of an app's process, which the active one ends.
        """
        log = SharedLog(FileSystemFolder(self.state / "resource-manager"))
        with contextlib.closing(SharedStore(path, log)) as store, store.transaction() as transaction:
            transaction.put_meta("run_id", self.run_id)

    def newest_checkpoint(self, app_id: str, job_id: str) -> int:
        """The iterations of a job's newest checkpoint. 0 where its history has them all."""
        return self.services[0].newest_checkpoint(app_id, job_id)

    @property
    def starts(self) -> int:
        return sum(service.starts for service in self.services)

    @property
    def process(self) -> subprocess.Popen[bytes]:
        """The process of the active one, by the lock in the shared folder."""
        deadline_s = time.monotonic() + ACTIVE_S
        while time.monotonic() < deadline_s:
            for service in self.services:
                if service.process.poll() is None and service.process.pid == self._holder():
                    return service.process
            time.sleep(0.05)
        raise AssertionError(f"no ResourceManager is active\n{self.log()[-8000:]}")

    def _holder(self) -> int:
        locks = sorted((self.state / "resource-manager").glob("lock-*"))
        with contextlib.suppress(OSError, ValueError):
            return int(json.loads(locks[-1].read_text())["pid"]) if locks else 0
        return 0

    def auction_workers(self) -> list[int]:
        return [pid for service in self.services for pid in service.auction_workers()]

    def address(self) -> str:
        return self._address

    def log(self) -> str:
        return "\n".join(service.log() for service in self.services)

    def stopped(self, pid: int) -> contextlib.AbstractContextManager[None]:
        return self.services[0].stopped(pid)

    def stop(self) -> int | None:
        """Stop the active one and its apps. The standby, which takes over, has none left; it is stopped next."""
        active = [service for service in self.services if service.process is self.process]
        codes = [service.stop() for service in sorted(self.services, key=lambda each: each not in active)]
        return next((code for code in codes if code != 0), 0)

    def close(self) -> None:
        for service in self.services:
            service.close()
