"""The service that a chaos run plays with: `themis rm start` on this machine, started again whenever it dies."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import shutil
import signal
import sqlite3
import struct
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import psutil

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
GPUS = 8
CLUSTER = {
    "name": "chaos",
    # The cards are declared as real ones, so that the numbers are in the tasks' environment. No program touches them.
    "devices": {"card": {"kind": "gpu"}},
    "machines": [{"prefix": "m", "count": 1, "slots": [4, 4], "device": "card", "racks": ["r0"]}],
}
TIME_SCALE = 30
NOTHING: Mapping[str, object] = {}
NOTHING_SET: Mapping[str, str] = {}
RESTART_S = 0.2
"""Pause before the next start, as `RestartSec` of systemd."""

DISK_MB = 256
FSIZE_BYTES = 4096


class EmbeddedService:
    """A ResourceManager with the engine `local`, its supervisor, and the faults that can be done to it.

    Args:
        folder: For all of its files.
        settings: More settings of the ResourceManager, by key.
        environment: More environment variables.
        options: More options of `themis rm start`.
        run_id: The mark of the run's processes, if the store has it already.
    """

    on_yarn = False
    masters_overlap_s = 0.0
    """How long an app master may live beside the next one."""

    def __init__(
        self,
        folder: Path,
        settings: Mapping[str, object] = NOTHING,
        environment: Mapping[str, str] = NOTHING_SET,
        *,
        options: Sequence[str] = (),
        run_id: str = "",
    ) -> None:
        self.run_id = run_id or uuid.uuid4().hex
        self._options = options
        self.disk = folder / "disk"
        self.disk.mkdir()
        self.has_own_disk = os.getuid() == 0 and _run(
            "mount", "-t", "tmpfs", "-o", f"size={DISK_MB}m", "tmpfs", self.disk
        )
        self.state = self.disk / "state"
        self.state.mkdir()
        self._clock = folder / "clock"
        self._clock.write_bytes(struct.pack("d", 0.0))
        self._log = folder / "rm.log"
        (folder / "cluster.yaml").write_text(json.dumps(CLUSTER))
        settings = {
            "cluster": str(folder / "cluster.yaml"), "state_dir": str(self.state), "listen": "127.0.0.1:0",
            "lease": {"duration_s": 4, "checkpoint_lead_s": 1, "grace_s": 3}, "policy": "themis", "auction": {"f": 0.0},
            "coalesce_s": 0.1, "report_deadline_s": 1, "bid_deadline_s": 1, "heartbeat_s": 0.3, "am_expiry_s": 5,
            "am_start_s": 60, "am_max_attempts": 1000, "rm_absence_s": 120, "time_scale": TIME_SCALE,
            "validate_state": True, **settings,
        }  # fmt: skip
        self._config = folder / "rm.yaml"
        self._config.write_text(json.dumps(settings))
        self._environment = {
            **os.environ,
            **environment,
            **({} if run_id else {"THEMIS_RUN_ID": self.run_id}),
            "CHAOS_CLOCK": str(self._clock),
            "PYTHONPATH": os.pathsep.join([str(HERE / "machine"), str(ROOT)]),
        }
        self.starts = 0
        self.process = self._start()
        self._stopping = threading.Event()
        self._supervisor = threading.Thread(target=self._supervise, daemon=True)
        self._supervisor.start()

    def _start(self) -> subprocess.Popen[bytes]:
        self.starts += 1
        command = [sys.executable, "-P", "-m", "themis_cli.main", "rm", "start", "-c", str(self._config)]
        command += self._options
        with self._log.open("ab") as log:
            return subprocess.Popen(command, env=self._environment, stdout=log, stderr=log, start_new_session=True)

    def _supervise(self) -> None:
        while True:
            self.process.wait()
            time.sleep(RESTART_S)
            if self._stopping.is_set():
                return
            self.process = self._start()

    def address(self) -> str:
        with contextlib.suppress(OSError):
            return (self.state / "address").read_text().strip()
        return ""

    def log(self) -> str:
        return self._log.read_text(errors="replace")

    def auction_workers(self) -> list[int]:
        with contextlib.suppress(psutil.Error):
            children = psutil.Process(self.process.pid).children()
            return [child.pid for child in children if "spawn_main" in " ".join(child.cmdline())]
        return []

    def stop(self) -> int | None:
        """SIGTERM. Returns its exit code, or None if it does not end within half a minute."""
        self._stopping.set()
        process = self.process
        process.terminate()
        try:
            return process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            return None

    def close(self) -> None:
        """Kill what is left, and give the disk back."""
        self._stopping.set()
        self.process.kill()
        self._supervisor.join(10)
        if self.has_own_disk:
            # Its content would be gone, and a failed run is to be looked into.
            shutil.copytree(self.state, self.disk.parent / "state", ignore_dangling_symlinks=True)
            _run("umount", "-l", self.disk)

    # ---- faults ----

    @contextlib.contextmanager
    def stopped(self, pid: int) -> Iterator[None]:
        """The process stands still."""
        os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)

    @contextlib.contextmanager
    def full_disk(self) -> Iterator[None]:
        """No byte is left on the disk. Without a disk of its own, no file of the ResourceManager may grow instead."""
        if not self.has_own_disk:
            pid = self.process.pid
            _limit_files(pid, FSIZE_BYTES)
            try:
                yield
            finally:
                _limit_files(pid, resource.RLIM_INFINITY)
            return
        ballast = self.disk / "ballast"
        try:
            with ballast.open("wb", buffering=0) as file, contextlib.suppress(OSError):
                while True:
                    file.write(bytes(2**16))
            yield
        finally:
            ballast.unlink()

    @contextlib.contextmanager
    def locked_store(self) -> Iterator[None]:
        """Another program holds the store for itself."""
        other = sqlite3.connect(self.state / "rm.sqlite", isolation_level=None, timeout=20)
        other.execute("BEGIN EXCLUSIVE")
        try:
            yield
        finally:
            other.execute("ROLLBACK")
            other.close()

    def cut_node(self, pick: float) -> None:
        """Cut the power of a node of YARN, and start it again."""
        raise NotImplementedError("this engine has no nodes")

    def newest_checkpoint(self, app_id: str, job_id: str) -> int:
        """The iterations of a job's newest checkpoint. 0 where its history has them all."""
        return 0

    def stopped_yarn(self) -> contextlib.AbstractContextManager[None]:
        """YARN's own ResourceManager stands still."""
        raise NotImplementedError("this engine has no YARN")

    def step_clock(self, seconds: float) -> None:
        """Set the wall clock of every program of the run ahead, or back."""
        (ahead_s,) = struct.unpack("d", self._clock.read_bytes())
        # In place: the programs have mapped the file.
        with self._clock.open("r+b") as file:
            file.write(struct.pack("d", ahead_s + seconds))


def _limit_files(pid: int, size_bytes: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (size_bytes, resource.RLIM_INFINITY))


def _run(*command: object) -> bool:
    return subprocess.run([str(part) for part in command], capture_output=True, check=False).returncode == 0
