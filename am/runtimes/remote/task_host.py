"""The task host: the program in a task's container, `python -m am.runtimes.remote.task_host`. Linux only.

1. It connects to its app master and sends its address.
2. It receives the order to run a task, and starts it.
3. It sends what the task logs and how much memory it uses, ends the task when ordered to, and sends its exit code.
4. It waits for the order to leave, or to prepare for the next task.

If the connection breaks, the task continues and the host connects again. If it cannot connect for `LOST_S` seconds
after the last connection broke, it ends the task with a grace period, because no app master would learn of it. `frames`
describes the protocol.
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
from typing import Any

from am.runtimes.remote import frames
from am.runtimes.remote.frames import Frame
from am.runtimes.remote.task_run import TaskRun
from am.runtimes.task_process import inherited_environment
from themis.errors import InputError, ThemisError
from themis.files import keep_private

LOST_S = 10.0
"""Seconds for which the app master may be unreachable before the host ends the task."""
DEFAULT_GRACE_S = 10.0
_NEEDED = (frames.ADDRESS_VARIABLE, frames.SEAT_VARIABLE, frames.TOKEN_VARIABLE)
_RETRY_S = 0.3
_POLL_S = 0.05
_EXIT_LOST = 76
"""Exit code of a host whose app master stayed unreachable before a task had one."""


class TaskHost:
    """Runs the tasks of one seat, one after the other, over any number of connections.

    Args:
        environment: The container's environment, from the app master's engine.
        folder: The container's own folder.
    """

    def __init__(self, environment: Mapping[str, str], folder: Path) -> None:
        missing = [name for name in _NEEDED if not environment.get(name)]
        if missing:
            raise InputError(
                "a task host must be started by an app master", value=missing, remedy="use: submarine app submit"
            )
        host, _, port = environment[frames.ADDRESS_VARIABLE].rpartition(":")
        self._app_master = (host, int(port))
        self._seat_id = environment[frames.SEAT_VARIABLE]
        self._token = environment[frames.TOKEN_VARIABLE]
        self._inherited = inherited_environment(environment)
        self._folder = folder
        self._log_dir = Path(
            environment.get(frames.LOG_DIR_VARIABLE) or environment.get("LOG_DIRS", "").split(",")[0] or folder
        )
        self._task_run = TaskRun(1, self._folder, self._log_dir)
        # Set if there is something to send before the next poll of the files.
        self._send_now = asyncio.Event()
        self._over = asyncio.Event()
        self._reported_run = 0
        self._engine_ends = False
        self._grace_s = DEFAULT_GRACE_S
        self._last_contact_s = 0.0
        self._work: set[asyncio.Task[None]] = set()

    async def run(self) -> int:
        """Run until the app master no longer needs the seat. Returns the exit code of the container."""
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, self._ended_by_engine)
        self._last_contact_s = loop.time()
        while not self._over.is_set():
            with contextlib.suppress(OSError):
                await self._connect()
            if not self._over.is_set():
                if loop.time() - self._last_contact_s > LOST_S:
                    await self._task_run.end(self._grace_s)
                    code = self._task_run.exit_code
                    return _EXIT_LOST if code is None else _shell_code(code)
                await asyncio.sleep(_RETRY_S)
        # The end of the loop removes its handler. Without this, a late SIGTERM of the engine would change the exit
        # code.
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
        await self._task_run.end(0.0)
        return _shell_code(self._task_run.exit_code or 0)

    # ---- one connection ----

    async def _connect(self) -> None:
        async with asyncio.timeout(LOST_S):
            reader, writer = await asyncio.open_connection(*self._app_master, limit=frames.MAX_HEADER_BYTES)
        _notice_silence(writer.get_extra_info("socket"))
        try:
            await self._serve_connection(reader, writer)
        finally:
            writer.close()

    async def _serve_connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        welcome = await self._join(reader, writer)
        if welcome.kind != "welcome":
            self._handle(welcome)
            return
        self._last_contact_s = asyncio.get_running_loop().time()
        self._task_run.sent = {str(name): int(count) for name, count in welcome.fields["received"].items()}
        works = {
            asyncio.ensure_future(work)
            for work in (self._send_news(writer), self._read_orders(reader), self._over.wait())
        }
        try:
            await asyncio.wait(works, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._last_contact_s = asyncio.get_running_loop().time()
            for work in works:
                work.cancel()
            await asyncio.gather(*works, return_exceptions=True)

    async def _join(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Frame:
        """Return the app master's answer, once each side has proven that it knows the token of the seat.

        An app master that has forgotten the seat refuses without a proof: this ends the task, as its silence would.
        """
        own_nonce = frames.new_nonce()
        writer.write(frames.encode("hello", seat=self._seat_id, nonce=own_nonce))
        answer = await _answer(reader)
        if answer.kind == "refused":
            return answer
        nonces = (self._seat_id, own_nonce, str(answer.fields.get("nonce")))
        if not frames.is_proven(answer, frames.proof(self._token, frames.APP_MASTER, *nonces)):
            raise ConnectionError("another process listens at the address of the app master")
        own_proof = frames.proof(self._token, frames.TASK_HOST, *nonces)
        writer.write(frames.encode("join", proof=own_proof, pid=os.getpid(), **self._place(writer)))
        return await _answer(reader)

    def _place(self, writer: asyncio.StreamWriter) -> dict[str, Any]:
        """Return the address and the folder of this run's task."""
        own_host, task_run = writer.get_extra_info("sockname")[0], self._task_run
        return {"task_run": task_run.number, "address": f"{own_host}:{task_run.port}", "job_dir": str(task_run.job_dir)}

    async def _read_orders(self, reader: asyncio.StreamReader) -> None:
        while (frame := await frames.read(reader)) is not None:
            self._handle(frame)

    def _handle(self, frame: Frame) -> None:
        if frame.kind == "code":
            if int(frame.fields["task_run"]) == self._task_run.number:
                self._task_run.add_code(int(frame.fields["offset"]), frame.payload)
        elif frame.kind == "run":
            self._start(frame)
        elif frame.kind == "stop":
            self._stop(float(frame.fields["grace_s"]))
        elif frame.kind == "next":
            self._next(int(frame.fields["task_run"]))
        elif frame.kind == "leave":
            self._over.set()
        elif frame.kind == "refused":
            # The app master counts this container as lost, so the job may already run elsewhere.
            self._task_run.kill()
            self._over.set()

    async def _send_news(self, writer: asyncio.StreamWriter) -> None:
        """Send the task's output as it grows, then its exit code, and later the address of the next task."""
        placed, self._reported_run = self._task_run.number, 0
        reported_mb = 0.0
        while True:
            self._send_now.clear()
            task_run = self._task_run
            if placed != task_run.number:
                placed, reported_mb = task_run.number, 0.0
                writer.write(frames.encode("ready", **self._place(writer)))
            code = task_run.exit_code
            if task_run.peak_memory_mb > reported_mb:
                reported_mb = task_run.peak_memory_mb
                writer.write(frames.encode("memory", task_run=task_run.number, peak_mb=reported_mb))
            for name in task_run.files:
                while data := task_run.unsent(name):
                    offset = task_run.sent.get(name, 0)
                    writer.write(frames.encode("file", data, task_run=task_run.number, name=name, offset=offset))
                    task_run.sent[name] = offset + len(data)
                    await writer.drain()
            task_run.give_back_sent()
            if code is not None and self._reported_run != task_run.number:
                writer.write(frames.encode("exit", task_run=task_run.number, code=code, tidy=task_run.tidy))
                await writer.drain()
                self._reported_run = task_run.number
                if self._engine_ends:
                    self._over.set()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_POLL_S):
                    await self._send_now.wait()

    # ---- the task ----

    def _start(self, order: Frame) -> None:
        # The app master repeats an order with every connection.
        if int(order.fields["task_run"]) == self._task_run.number and not self._task_run.begun:
            self._task_run.start(order, self._inherited)
            self._spawn(self._watch(self._task_run))
            self._spawn(self._task_run.measure())

    async def _watch(self, task_run: TaskRun) -> None:
        await task_run.watch()
        self._send_now.set()

    def _next(self, number: int) -> None:
        """Prepare for another task. Ignores repeated orders."""
        if number != self._task_run.number + 1 or self._task_run.running:
            return
        self._spawn(self._task_run.clean())
        self._task_run = TaskRun(number, self._folder, self._log_dir)
        self._send_now.set()

    def _stop(self, grace_s: float) -> None:
        self._grace_s = grace_s
        if self._task_run.running:
            self._spawn(self._task_run.end(grace_s))
        elif not self._task_run.begun:
            self._over.set()

    def _ended_by_engine(self) -> None:
        """Let the task save, and report its exit code, because the engine ends the container."""
        self._engine_ends = True
        self._stop(DEFAULT_GRACE_S)
        if self._reported_run == self._task_run.number:
            self._over.set()

    def _spawn(self, work: Coroutine[object, object, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._work.add(task)
        task.add_done_callback(self._work.discard)


async def _answer(reader: asyncio.StreamReader) -> Frame:
    async with asyncio.timeout(LOST_S):
        answer = await frames.read(reader)
    if answer is None:
        raise ConnectionError("the app master did not answer")
    return answer


def _notice_silence(connection: socket.socket) -> None:
    """Let the kernel close the connection if the other machine stops answering."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 3)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 2)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(1000 * LOST_S))


def _shell_code(code: int) -> int:
    """Return the exit code as a shell does: 128 plus the signal's number if a signal ended the task."""
    return 128 - code if code < 0 else code


def main() -> int:
    """Run the tasks of one seat. Returns the exit code."""
    keep_private()
    try:
        return asyncio.run(TaskHost(os.environ, Path.cwd()).run())
    except ThemisError as error:
        sys.stderr.write(f"task host: {error}\n")
        return error.exit_code


if __name__ == "__main__":
    sys.exit(main())
