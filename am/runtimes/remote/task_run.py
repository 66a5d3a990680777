"""One run of a task in a container: its folder, its log, its port and its process. Linux only."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import socket
import sys
from collections.abc import Mapping
from pathlib import Path

from am.runtimes.memory_use import check_pauses_s, tree_memory_mb
from am.runtimes.remote import frames
from am.runtimes.remote.frames import Frame
from themis.archives import ArchiveError
from themis.capped_files import give_back
from themis.code_archive import CODE_FOLDER, unpack_code
from themis.errors import ThemisError
from themis.files import add_note, open_regular
from themis.processes import ProcessSpec, RunningProcess, kill_marked, look_surely, start

_EXIT_NOT_STARTED = 127

SENT_BYTES = 256 * 1024 * 1024
"""Disk space for sent output that the log of a task may take in its container. The app master has a copy."""


class TaskRun:
    """A task host's state for one task. Each task in a container has its own run.

    Attributes:
        tidy: False if a process of the task is left that SIGKILL did not end.
        peak_memory_mb: The most memory that the task was seen to use.

    Args:
        number: Number of the run in its container, from 1.
        folder: The container's own folder.
        log_dir: Folder in which the engine expects logs.
    """

    def __init__(self, number: int, folder: Path, log_dir: Path) -> None:
        suffix = f"-{number}" if number > 1 else ""
        self.number = number
        self.job_dir = folder / f"job{suffix}"
        self.files = {"log": log_dir / f"task{suffix}.log"}
        self.sent: dict[str, int] = {}
        self.exit_code: int | None = None
        self.tidy = True
        self.peak_memory_mb = 0.0
        self.ended = asyncio.Event()
        self._marks: Mapping[str, str] = {}
        self._process: RunningProcess | None = None
        self._code = bytearray()
        # Keep the port open until the task starts, so that no other task host of this machine gets it.
        self._port = socket.create_server(("", 0))
        self.port: int = self._port.getsockname()[1]

    @property
    def begun(self) -> bool:
        """Whether the host has started its task, or tried to."""
        return self._process is not None or self.exit_code is not None

    @property
    def running(self) -> bool:
        """Whether its task runs."""
        return self._process is not None and self.exit_code is None

    def start(self, order: Frame, inherited: Mapping[str, str]) -> None:
        """Start the task as ordered. If this fails, the task counts as ended, and its log has the reason."""
        command = [str(word) for word in order.fields["command"]]
        if order.fields["python"]:
            command[0] = sys.executable
        self._marks = order.fields["marks"]
        self.files |= {str(name): self.job_dir / str(name) for name in order.fields["mirrored"]}
        self._port.close()
        working_dir = self.job_dir / CODE_FOLDER if self._code else self.job_dir
        environment = {**inherited, **order.fields["environment"], "THEMIS_JOB_DIR": str(self.job_dir)}
        try:
            if len(self._code) != int(order.fields["code_bytes"]):
                raise ArchiveError("a part of the code is missing", value=f"{len(self._code)} bytes")
            if self._code:
                unpack_code(bytes(self._code), working_dir)
                self._code.clear()
            self._process = start(
                ProcessSpec(
                    command=command,
                    environment=environment,
                    working_dir=working_dir,
                    stdout=self.files["log"],
                    dies_with_parent=True,
                )
            )
        except ThemisError as error:
            add_note(self.files["log"], f"themis: {error}\n")
            self._end(_EXIT_NOT_STARTED)

    def add_code(self, offset: int, part: bytes) -> None:
        """Add a part of the code's archive. A part that came before is ignored, since orders are repeated."""
        if offset == len(self._code) and not self.begun:
            self._code += part

    async def watch(self) -> None:
        """Wait until the task has ended, and kill the rest of its processes."""
        if self._process is not None and self.exit_code is None:
            code = await self._process.wait()
            # Use a thread, because this examines every process of the machine.
            left = await look_surely(kill_marked, self._marks)
            # A process that outlives SIGKILL may still use the card, so no other task may start here.
            self.tidy = not left
            self._end(code)

    async def measure(self) -> None:
        """Measure the memory of the task until it ends."""
        for pause_s in check_pauses_s():
            if self._process is None or not self.running:
                return
            self.peak_memory_mb = max(self.peak_memory_mb, tree_memory_mb(self._process.pid))
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause_s):
                    await self.ended.wait()

    async def end(self, grace_s: float) -> None:
        """Send SIGTERM to the task, and SIGKILL after `grace_s` seconds. Returns when the task has ended."""
        if self._process is not None and self.running:
            await self._process.terminate(grace_s)
            await self.ended.wait()

    def kill(self) -> None:
        """Send SIGKILL to the task."""
        if self._process is not None:
            self._process.kill()

    def unsent(self, name: str) -> bytes:
        """Return the next unsent part of a file. Empty if there is none."""
        try:
            with os.fdopen(open_regular(self.files[name], os.O_RDONLY), "rb") as file:
                file.seek(self.sent.get(name, 0))
                return file.read(frames.CHUNK_BYTES)
        except OSError:
            return b""

    def give_back_sent(self) -> None:
        """Give the space of sent output back, if the log takes too much."""
        with contextlib.suppress(OSError), os.fdopen(open_regular(self.files["log"], os.O_WRONLY), "wb") as file:
            give_back(file.fileno(), SENT_BYTES, self.sent.get("log", 0))

    async def clean(self) -> None:
        """Remove the run's folder and free its port, but keep its log."""
        self._port.close()
        await asyncio.to_thread(shutil.rmtree, self.job_dir, True)

    def _end(self, code: int) -> None:
        self.exit_code = code
        self.ended.set()
