"""What runs in the container of a task: `python -m am.runtimes.remote.task_host`. Linux only.

It connects to its app master, says where it is, gets the order to run the task, sends what the task logs, ends it when
told to, and tells its exit code. While the app master is away for a moment it goes on; when it stays away, the task is
told to save and end, since nobody would know of it any more.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import sys
from collections.abc import Coroutine, Mapping
from pathlib import Path

from am.runtimes.remote import frames
from am.runtimes.remote.frames import Frame
from am.runtimes.task_process import inherited_environment
from themis.errors import InputError, ThemisError
from themis.processes import ProcessSpec, RunningProcess, kill_marked, start

LOST_S = 10.0
"""How long an app master may be away before the task is told to end."""
DEFAULT_GRACE_S = 10.0
_RETRY_S = 0.3
_POLL_S = 0.05
_EXIT_LOST = 76
_EXIT_NOT_STARTED = 127


class TaskHost:
    """One seat: at most one task, over any number of connections.

    Args:
        environment: What the app master's engine gave to the container.
        folder: The container's own folder.
    """

    def __init__(self, environment: Mapping[str, str], folder: Path) -> None:
        missing = [name for name in _NEEDED if not environment.get(name)]
        if missing:
            raise InputError(
                "a task host is started by an app master", value=missing, remedy="use: submarine app submit"
            )
        host, _, port = environment[frames.ADDRESS_VARIABLE].rpartition(":")
        self._app_master = (host, int(port))
        self._seat_id = environment[frames.SEAT_VARIABLE]
        self._token = environment[frames.TOKEN_VARIABLE]
        self._inherited = inherited_environment(environment)
        self._job_dir = folder / "job"
        log_dir = (
            environment.get(frames.LOG_DIR_VARIABLE) or environment.get("LOG_DIRS", "").split(",")[0] or str(folder)
        )
        self._files = {"log": Path(log_dir) / "task.log"}
        self._sent: dict[str, int] = {}
        self._marks: Mapping[str, str] = {}
        # Held open until the task is started, so that no other task host of this machine is given the same port.
        self._port = socket.create_server(("", 0))
        self._process: RunningProcess | None = None
        self._exit_code: int | None = None
        self._ended = asyncio.Event()
        self._over = asyncio.Event()
        self._grace_s = DEFAULT_GRACE_S
        self._heard_at_s = 0.0
        self._work: set[asyncio.Task[None]] = set()

    async def run(self) -> int:
        """Until the task has ended and the app master knows; returns the exit code of the container."""
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, self._stop, DEFAULT_GRACE_S)
        self._heard_at_s = loop.time()
        while not self._over.is_set():
            with contextlib.suppress(OSError):
                await self._meet()
            if not self._over.is_set():
                if loop.time() - self._heard_at_s > LOST_S:
                    return await self._give_up()
                await asyncio.sleep(_RETRY_S)
        await self._end_task(0.0)
        return _shell_code(self._exit_code or 0)

    # ---- one connection ----

    async def _meet(self) -> None:
        opening = asyncio.open_connection(*self._app_master, limit=frames.MAX_HEADER_BYTES)
        reader, writer = await asyncio.wait_for(opening, LOST_S)
        _notice_silence(writer.get_extra_info("socket"))
        try:
            await self._talk(reader, writer)
        finally:
            writer.close()

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        own_host = writer.get_extra_info("sockname")[0]
        hello = frames.encode(
            "hello",
            seat=self._seat_id,
            token=self._token,
            address=f"{own_host}:{self._port_number}",
            job_dir=str(self._job_dir),
            pid=os.getpid(),
        )
        writer.write(hello)
        welcome = await frames.read(reader)
        if welcome is None:
            raise ConnectionError("the app master did not answer")
        if welcome.kind != "welcome":
            self._take(welcome)
            return
        self._heard_at_s = asyncio.get_running_loop().time()
        self._sent = {str(name): int(count) for name, count in welcome.fields["received"].items()}
        works = {
            asyncio.ensure_future(work) for work in (self._send_news(writer), self._obey(reader), self._over.wait())
        }
        try:
            await asyncio.wait(works, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._heard_at_s = asyncio.get_running_loop().time()
            for work in works:
                work.cancel()
            await asyncio.gather(*works, return_exceptions=True)

    async def _obey(self, reader: asyncio.StreamReader) -> None:
        while (frame := await frames.read(reader)) is not None:
            self._take(frame)

    def _take(self, frame: Frame) -> None:
        if frame.kind == "run" and self._process is None and self._exit_code is None:
            self._start(frame)
        elif frame.kind == "stop":
            self._stop(float(frame.fields["grace_s"]))
        elif frame.kind in ("bye", "leave"):
            self._over.set()
        elif frame.kind == "refused":
            # For the app master this container is gone, its node lost: the job may run elsewhere already.
            if self._process is not None:
                self._process.kill()
            self._over.set()

    async def _send_news(self, writer: asyncio.StreamWriter) -> None:
        """Send what the task writes as it grows; its exit code after the last of it."""
        told = False
        while True:
            code = self._exit_code
            for name in self._files:
                while data := self._unsent(name):
                    writer.write(frames.encode("file", data, name=name, offset=self._sent.get(name, 0)))
                    self._sent[name] = self._sent.get(name, 0) + len(data)
                    await writer.drain()
            if code is not None and not told:
                told = True
                writer.write(frames.encode("exit", code=code))
            await asyncio.sleep(_POLL_S)

    def _unsent(self, name: str) -> bytes:
        try:
            with self._files[name].open("rb") as file:
                file.seek(self._sent.get(name, 0))
                return file.read(frames.CHUNK_BYTES)
        except OSError:
            return b""

    # ---- the task ----

    def _start(self, frame: Frame) -> None:
        command = [str(word) for word in frame.fields["command"]]
        if frame.fields["python"]:
            command[0] = sys.executable
        self._marks = frame.fields["marks"]
        self._files |= {str(name): self._job_dir / str(name) for name in frame.fields["mirrored"]}
        self._port.close()
        try:
            self._process = start(
                ProcessSpec(
                    command=command,
                    environment={
                        **self._inherited,
                        **frame.fields["environment"],
                        "THEMIS_JOB_DIR": str(self._job_dir),
                    },
                    working_dir=self._job_dir,
                    stdout=self._files["log"],
                    dies_with_parent=True,
                )
            )
        except ThemisError as error:
            with self._files["log"].open("a", encoding="utf-8") as log:
                log.write(f"themis: {error}\n")
            self._exit_code = _EXIT_NOT_STARTED
            return
        self._spawn(self._watch(self._process))

    async def _watch(self, process: RunningProcess) -> None:
        code = await process.wait()
        # In a thread, as it looks at every process of the machine.
        await asyncio.to_thread(kill_marked, self._marks)
        self._exit_code = code
        self._ended.set()

    def _stop(self, grace_s: float) -> None:
        self._grace_s = grace_s
        if self._process is None:
            self._over.set()
        else:
            self._spawn(self._end_task(grace_s))

    async def _end_task(self, grace_s: float) -> None:
        if self._process is not None and self._exit_code is None:
            await self._process.terminate(grace_s)
            await self._ended.wait()

    async def _give_up(self) -> int:
        await self._end_task(self._grace_s)
        return _EXIT_LOST if self._exit_code is None else _shell_code(self._exit_code)

    @property
    def _port_number(self) -> int:
        if self._port.fileno() >= 0:
            self._number: int = self._port.getsockname()[1]
        return self._number

    def _spawn(self, work: Coroutine[object, object, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._work.add(task)
        task.add_done_callback(self._work.discard)


_NEEDED = (frames.ADDRESS_VARIABLE, frames.SEAT_VARIABLE, frames.TOKEN_VARIABLE)


def _notice_silence(connection: socket.socket) -> None:
    """Have the kernel break the connection when the other machine is gone without a word."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 3)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 2)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(1000 * LOST_S))


def _shell_code(code: int) -> int:
    """The exit code as a shell tells it: 128 and the signal's number where a signal ended the task."""
    return 128 - code if code < 0 else code


def main() -> int:
    """Run one seat's task; returns the exit code."""
    try:
        return asyncio.run(TaskHost(os.environ, Path.cwd()).run())
    except ThemisError as error:
        sys.stderr.write(f"task host: {error}\n")
        return error.exit_code


if __name__ == "__main__":
    sys.exit(main())
