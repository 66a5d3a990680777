"""What runs in the container of a task: `python -m am.runtimes.remote.task_host`. Linux only.

It connects to its app master, says where it is, gets the order to run the task, sends what the task logs, ends it when
told to, and tells its exit code. Then it waits: for the word to leave, or for the next task's turn. While the app
master is away for a moment it goes on; when it stays away, the task is told to save and end, since nobody would know
of it any more.
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
from am.runtimes.remote.turn import Turn
from am.runtimes.task_process import inherited_environment
from themis.errors import InputError, ThemisError
from themis.files import keep_private

LOST_S = 10.0
"""How long an app master may be away before the task is told to end."""
DEFAULT_GRACE_S = 10.0
_RETRY_S = 0.3
_POLL_S = 0.05
_EXIT_LOST = 76


class TaskHost:
    """One seat: one task after the other, over any number of connections.

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
        self._folder = folder
        self._log_dir = Path(
            environment.get(frames.LOG_DIR_VARIABLE) or environment.get("LOG_DIRS", "").split(",")[0] or folder
        )
        self._turn = Turn(1, self._folder, self._log_dir)
        # Something to tell before the next look at the files.
        self._news = asyncio.Event()
        self._over = asyncio.Event()
        self._told_turn = 0
        self._engine_ends = False
        self._grace_s = DEFAULT_GRACE_S
        self._heard_at_s = 0.0
        self._work: set[asyncio.Task[None]] = set()

    async def run(self) -> int:
        """Until the app master needs the seat no more; returns the exit code of the container."""
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, self._ended_by_engine)
        self._heard_at_s = loop.time()
        while not self._over.is_set():
            with contextlib.suppress(OSError):
                await self._meet()
            if not self._over.is_set():
                if loop.time() - self._heard_at_s > LOST_S:
                    return await self._give_up()
                await asyncio.sleep(_RETRY_S)
        # The loop's end takes its handler away, and the engine's word, come late, would then change the exit code.
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
        await self._turn.end(0.0)
        return _shell_code(self._turn.exit_code or 0)

    # ---- one connection ----

    async def _meet(self) -> None:
        async with asyncio.timeout(LOST_S):
            reader, writer = await asyncio.open_connection(*self._app_master, limit=frames.MAX_HEADER_BYTES)
        _notice_silence(writer.get_extra_info("socket"))
        try:
            await self._talk(reader, writer)
        finally:
            writer.close()

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(
            frames.encode("hello", seat=self._seat_id, token=self._token, pid=os.getpid(), **self._place(writer))
        )
        welcome = await frames.read(reader)
        if welcome is None:
            raise ConnectionError("the app master did not answer")
        if welcome.kind != "welcome":
            self._take(welcome)
            return
        self._heard_at_s = asyncio.get_running_loop().time()
        self._turn.sent = {str(name): int(count) for name, count in welcome.fields["received"].items()}
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

    def _place(self, writer: asyncio.StreamWriter) -> dict[str, Any]:
        """Where the task of this turn is found."""
        own_host, turn = writer.get_extra_info("sockname")[0], self._turn
        return {"turn": turn.number, "address": f"{own_host}:{turn.port}", "job_dir": str(turn.job_dir)}

    async def _obey(self, reader: asyncio.StreamReader) -> None:
        while (frame := await frames.read(reader)) is not None:
            self._take(frame)

    def _take(self, frame: Frame) -> None:
        if frame.kind == "run":
            self._start(frame)
        elif frame.kind == "stop":
            self._stop(float(frame.fields["grace_s"]))
        elif frame.kind == "next":
            self._next(int(frame.fields["turn"]))
        elif frame.kind == "leave":
            self._over.set()
        elif frame.kind == "refused":
            # For the app master this container is gone, its node lost: the job may run elsewhere already.
            self._turn.kill()
            self._over.set()

    async def _send_news(self, writer: asyncio.StreamWriter) -> None:
        """Send what the task writes as it grows, its exit code after the last of it, and the place of the next."""
        placed, self._told_turn = self._turn.number, 0
        while True:
            self._news.clear()
            turn = self._turn
            if placed != turn.number:
                placed = turn.number
                writer.write(frames.encode("ready", **self._place(writer)))
            code = turn.exit_code
            for name in turn.files:
                while data := turn.unsent(name):
                    offset = turn.sent.get(name, 0)
                    writer.write(frames.encode("file", data, turn=turn.number, name=name, offset=offset))
                    turn.sent[name] = offset + len(data)
                    await writer.drain()
            if code is not None and self._told_turn != turn.number:
                writer.write(frames.encode("exit", turn=turn.number, code=code, tidy=turn.tidy))
                await writer.drain()
                self._told_turn = turn.number
                if self._engine_ends:
                    self._over.set()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_POLL_S):
                    await self._news.wait()

    # ---- the task ----

    def _start(self, order: Frame) -> None:
        # An order is repeated with every connection.
        if int(order.fields["turn"]) == self._turn.number and not self._turn.begun:
            self._turn.start(order, self._inherited)
            self._spawn(self._watch(self._turn))

    async def _watch(self, turn: Turn) -> None:
        await turn.watch()
        self._news.set()

    def _next(self, number: int) -> None:
        """Make ready for another task; a word that comes again is no other."""
        if number != self._turn.number + 1 or self._turn.running:
            return
        self._spawn(self._turn.clean())
        self._turn = Turn(number, self._folder, self._log_dir)
        self._news.set()

    def _stop(self, grace_s: float) -> None:
        self._grace_s = grace_s
        if self._turn.running:
            self._spawn(self._turn.end(grace_s))
        elif not self._turn.begun:
            self._over.set()

    def _ended_by_engine(self) -> None:
        """The engine ends the container: the task may save, and its exit code is told."""
        self._engine_ends = True
        self._stop(DEFAULT_GRACE_S)
        if self._told_turn == self._turn.number:
            self._over.set()

    async def _give_up(self) -> int:
        await self._turn.end(self._grace_s)
        return _EXIT_LOST if self._turn.exit_code is None else _shell_code(self._turn.exit_code)

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
    keep_private()
    try:
        return asyncio.run(TaskHost(os.environ, Path.cwd()).run())
    except ThemisError as error:
        sys.stderr.write(f"task host: {error}\n")
        return error.exit_code


if __name__ == "__main__":
    sys.exit(main())
