"""A ResourceManager as its user starts it, on a few emulated GPUs, and what one sees of its apps from outside."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil

from rm_plugin.service.store_sqlite import SqliteReader
from submarine_client.connection import Connection
from themis.processes import find_marked

WAIT_S = 200.0
SETTINGS = """\
cluster: cluster.yaml
state_dir: state
listen: 127.0.0.1:0
lease: {{duration_s: {lease_s}, checkpoint_lead_s: 2, grace_s: 20}}
coalesce_s: 0.1
heartbeat_s: 0.3
rm_absence_s: 60
validate_state: true
"""
CLUSTER = """\
name: pair
devices:
  emulated-gpu: {{kind: gpu, emulated: true}}
machines:
  - {{prefix: two, count: 1, slots: [{gpus}], device: emulated-gpu, racks: [rack0]}}
"""


class LiveThemis:
    """A ResourceManager under way, in a folder of its own."""

    def __init__(self, folder: Path, address: str, client: Connection) -> None:
        self.folder, self.address, self.client = folder, address, client

    def submarine(self, *words: str, timeout_s: float = WAIT_S) -> str:
        """What the command prints; it must succeed."""
        command = [sys.executable, "-m", "submarine_client.main", *words]
        environment = os.environ | {"THEMIS_RM": self.address}
        ended = subprocess.run(
            command, cwd=self.folder, env=environment, capture_output=True, text=True, timeout=timeout_s, check=False
        )
        assert ended.returncode == 0, ended.stdout + ended.stderr
        return ended.stdout

    def events(self, app_id: str, kind: str) -> list[dict]:
        found = self.client.watch(app_id, follow=False)
        return [json.loads(event.detail) for event in found if event.kind == kind]

    def ended(self, app_id: str) -> str:
        """The state that an app ends in."""
        until(lambda: self.client.show(app_id).state in ("FINISHED", "FAILED", "KILLED"), f"{app_id} ends")
        return self.client.show(app_id).state

    def log(self, app_id: str) -> str:
        paths = (Path(self.client.show(app_id).folder) / "jobs").glob("*/task-0.log")
        return "".join(path.read_text() for path in paths)

    def job_folder(self, app_id: str) -> Path:
        return Path(self.client.show(app_id).folder) / "jobs" / "job-00"

    def history(self, app_id: str) -> list[dict]:
        return [json.loads(line) for line in (self.job_folder(app_id) / "history.jsonl").read_text().splitlines()]

    def run_id(self) -> str:
        with contextlib.closing(SqliteReader(self.folder / "state" / "rm.sqlite")) as store:
            return store.meta("run_id") or ""

    def kill_task(self, app_id: str, index: int) -> None:
        """What runs out of memory or hits a broken card: the task's Python process is gone at once."""
        # Apps of another ResourceManager on this machine have the same ids.
        marks = {"THEMIS_RUN_ID": self.run_id(), "THEMIS_APP_ID": app_id, "THEMIS_TASK_INDEX": str(index)}
        pids = [pid for pid in find_marked(marks) if "python" in psutil.Process(pid).name()]
        assert pids
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


@contextlib.contextmanager
def live_themis(folder: Path, *, lease_s: int = 60, gpus: int = 2) -> Iterator[LiveThemis]:
    (folder / "cluster.yaml").write_text(CLUSTER.format(gpus=gpus))
    (folder / "rm.yaml").write_text(SETTINGS.format(lease_s=lease_s))
    environment = {name: value for name, value in os.environ.items() if name != "THEMIS_RM"}
    with (folder / "rm.log").open("wb") as log:
        command = [sys.executable, "-m", "themis_cli.main", "rm", "start", "-c", "rm.yaml"]
        rm = subprocess.Popen(command, cwd=folder, env=environment, stdout=log, stderr=log)
    try:
        path = folder / "state" / "address"
        until(lambda: path.is_file() and path.read_text().strip(), "the ResourceManager listens")
        address = path.read_text().strip()
        # TensorFlow may have the cores to itself for a while.
        with Connection(address, timeout_s=60.0) as client:
            yield LiveThemis(folder, address, client)
    finally:
        rm.send_signal(signal.SIGTERM)
        assert rm.wait(120) == 0, (folder / "rm.log").read_text()[-3000:]


def until(condition, what: str, limit_s: float = WAIT_S) -> None:
    deadline_s = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline_s, f"not within {limit_s:g} s: {what}"
        time.sleep(0.05)
