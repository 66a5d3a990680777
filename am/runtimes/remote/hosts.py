"""The app master's server for its task hosts. They prove who they are, receive orders, and send their tasks' output.

`frames` describes the protocol.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from am.runtimes.remote import frames
from am.runtimes.remote.frames import Frame
from themis.files import open_regular
from themis.peers import least_needed

LOG = logging.getLogger("themis.am.hosts")

MIRRORED = ("history.jsonl",)
"""Files in a job's folder of which the app master keeps a copy."""

MAX_UNPROVEN = 64
"""Connections without a proof at a time. Any process that reaches the port can open some; each is a file handle."""

WELCOME_S = 10.0
"""Seconds that a task host has to prove itself; it tries again."""


def _ignore(peak_mb: float) -> None:
    """Do nothing with the memory of a task."""


@dataclass(slots=True)
class HostState:
    """The state of one task host, over all its connections.

    Attributes:
        task_run: Number of its present or next task in the container, from 1.
        ready: Set once the host is ready for that task. `address` and `job_dir` are then valid.
        order: The order to start the task. Empty before `run`.
        received: Bytes received of each of the task's files. A host that connects again continues there.
        exited: Set once the task has ended, with `exit_code`.
        tidy: Whether no process of the task is left.
        leaving: Whether the host was ordered to leave.
        used_memory: Receives the most memory in MB that the task was seen to use, whenever it has grown.
    """

    token: str = field(default_factory=lambda: secrets.token_hex(16), repr=False)
    writer: asyncio.StreamWriter | None = None
    pid: int = 0
    task_run: int = 1
    ready: asyncio.Event = field(default_factory=asyncio.Event)
    address: str = ""
    job_dir: str = ""
    order: bytes = field(default=b"", repr=False)
    files: dict[str, Path] = field(default_factory=dict)
    received: dict[str, int] = field(default_factory=dict)
    exited: asyncio.Event = field(default_factory=asyncio.Event)
    exit_code: int | None = None
    tidy: bool = True
    leaving: bool = False
    used_memory: Callable[[float], None] = _ignore


class TaskHosts:
    """The server for task hosts. An app master has one, in its event loop."""

    def __init__(self) -> None:
        self._hosts: dict[str, HostState] = {}
        self._unproven: list[asyncio.WriteTransport] = []
        self._server: asyncio.Server | None = None

    async def listen(self, host: str) -> int:
        """Listen on loopback only if `host` is loopback, otherwise on every interface. Returns the port."""
        # Do not pass None: that would open a second port, for IPv6, in random order.
        interface = host if host.startswith("127.") else "0.0.0.0"
        self._server = await asyncio.start_server(self._serve, interface, 0, limit=frames.MAX_HEADER_BYTES)
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    async def close(self) -> None:
        """Stop listening, and close all connections."""
        for state in self._hosts.values():
            if state.writer is not None:
                state.writer.close()
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()

    # ---- seats ----

    def expect(self, seat_id: str) -> str:
        """Accept a host for this seat. Returns the token that the host must know."""
        state = self._hosts[seat_id] = HostState()
        return state.token

    async def ready(self, seat_id: str) -> HostState:
        """Wait until the seat's host is ready for its next task, and return its state."""
        state = self._hosts[seat_id]
        await state.ready.wait()
        return state

    async def exited(self, seat_id: str) -> None:
        """Wait until the seat's host has reported the end of its task. All its output has then arrived."""
        await self._hosts[seat_id].exited.wait()

    def forget(self, seat_id: str) -> None:
        """Remove a seat whose container counts as gone. If its host still runs, it is ordered to kill its task."""
        state = self._hosts.pop(seat_id, None)
        if state is not None and state.writer is not None:
            state.writer.write(frames.encode("refused"))
            state.writer.close()

    def pid(self, seat_id: str) -> int:
        """Return the process id of the seat's host, on its own machine."""
        return self._hosts[seat_id].pid

    def exit_code(self, seat_id: str) -> int | None:
        """Return the exit code of the seat's task. Returns None until its host has reported it."""
        state = self._hosts.get(seat_id)
        return None if state is None else state.exit_code

    def tidy(self, seat_id: str) -> bool:
        """Whether no process of the seat's ended task is left."""
        state = self._hosts.get(seat_id)
        return state is not None and state.tidy

    # ---- orders ----

    def renew(self, seat_id: str) -> None:
        """Order the seat's host, whose task has ended, to prepare for another task."""
        state = self._hosts[seat_id]
        state.task_run += 1
        state.order, state.files, state.received, state.exit_code = b"", {}, {}, None
        state.ready, state.exited = asyncio.Event(), asyncio.Event()
        self._send(state, _next(state))

    def run(
        self,
        seat_id: str,
        *,
        command: tuple[str, ...],
        python: bool,
        environment: Mapping[str, str],
        marks: Mapping[str, str],
        log_path: Path,
        folder: Path,
        code: bytes = b"",
        used_memory: Callable[[float], None] = _ignore,
    ) -> None:
        """Order the seat's host to start its task.

        Args:
            seat_id: The seat.
            command: Program and arguments.
            python: Whether to replace the first word of the command with the host's own interpreter.
            environment: Variables of the task.
            marks: Variables that identify the task's processes.
            log_path: File to which the task's output is appended.
            folder: Folder to which the MIRRORED files in the job's folder are copied as they grow.
            code: Archive to unpack before the start. The task then starts in its folder.
            used_memory: Receives the most memory in MB that the task was seen to use, whenever it has grown.
        """
        state = self._hosts[seat_id]
        state.files = {"log": log_path, **{name: folder / name for name in MIRRORED}}
        state.used_memory = used_memory
        log_path.parent.mkdir(parents=True, exist_ok=True)
        parts = (
            frames.encode("code", code[offset : offset + frames.CHUNK_BYTES], task_run=state.task_run, offset=offset)
            for offset in range(0, len(code), frames.CHUNK_BYTES)
        )
        state.order = b"".join(parts) + frames.encode(
            "run",
            task_run=state.task_run,
            command=list(command),
            python=python,
            environment=dict(environment),
            marks=dict(marks),
            mirrored=list(MIRRORED),
            code_bytes=len(code),
        )
        self._send(state, state.order)

    def stop(self, seat_id: str, grace_s: float) -> None:
        """Order the seat's host to end its task, and to kill it after `grace_s` seconds."""
        if (state := self._hosts.get(seat_id)) is not None:
            self._send(state, frames.encode("stop", grace_s=grace_s))

    def leave(self, seat_id: str) -> None:
        """Order a host that has no task any more to end."""
        if (state := self._hosts.get(seat_id)) is not None:
            state.leaving = True
            self._send(state, _LEAVE)

    # ---- connections ----

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        state: HostState | None = None
        try:
            state = await self._proven(reader, writer)
            while state is not None and (frame := await frames.read(reader)) is not None:
                self._take(state, frame)
        except (ConnectionError, OSError) as error:
            LOG.info("a task host's connection broke: %s", error)
        finally:
            if state is not None and state.writer is writer:
                state.writer = None
            writer.close()

    async def _proven(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> HostState | None:
        """Do as `_welcome`, for a limited time and not for too many connections at once."""
        if len(self._unproven) >= MAX_UNPROVEN:
            ended = least_needed(self._unproven)
            self._unproven.remove(ended)
            ended.abort()
        transport = writer.transport
        self._unproven.append(transport)
        try:
            async with asyncio.timeout(WELCOME_S):
                return await self._welcome(reader, writer)
        finally:
            if transport in self._unproven:
                self._unproven.remove(transport)

    async def _welcome(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> HostState | None:
        hello = await frames.read(reader)
        if hello is None or hello.kind != "hello":
            return None
        seat_id, host_nonce = str(hello.fields.get("seat")), str(hello.fields.get("nonce"))
        state = self._hosts.get(seat_id)
        if state is None:
            writer.write(frames.encode("refused"))
            return None
        nonces = (seat_id, host_nonce, own_nonce := frames.new_nonce())
        own_proof = frames.proof(state.token, frames.APP_MASTER, *nonces)
        writer.write(frames.encode("proof", nonce=own_nonce, proof=own_proof))
        join = await frames.read(reader)
        if join is None:
            return None
        if not frames.is_proven(join, frames.proof(state.token, frames.TASK_HOST, *nonces)):
            LOG.warning("a task host does not know the token of its seat")
            return None
        if self._hosts.get(seat_id) is not state:
            # Forgotten meanwhile.
            writer.write(frames.encode("refused"))
            return None
        if state.writer is not None:
            state.writer.close()
        state.writer = writer
        state.pid = int(join.fields["pid"])
        writer.write(frames.encode("welcome", received=state.received))
        # Repeat the last order, which the broken connection may have lost. The host ignores it if it has it already.
        if state.leaving:
            writer.write(_LEAVE)
        elif int(join.fields["task_run"]) != state.task_run:
            writer.write(_next(state))
        else:
            writer.write(state.order)
            _placed(state, join)
        return state

    def _take(self, state: HostState, frame: Frame) -> None:
        if frame.fields.get("task_run") != state.task_run:
            # This frame is of an ended task. The host sent it again after a connection broke.
            return
        if frame.kind == "file":
            self._append(state, str(frame.fields["name"]), int(frame.fields["offset"]), frame.payload)
        elif frame.kind == "memory":
            state.used_memory(float(frame.fields["peak_mb"]))
        elif frame.kind == "exit":
            state.exit_code, state.tidy = int(frame.fields["code"]), bool(frame.fields["tidy"])
            state.exited.set()
        elif frame.kind == "ready":
            _placed(state, frame)

    def _append(self, state: HostState, name: str, offset: int, data: bytes) -> None:
        path, known = state.files.get(name), state.received.get(name, 0)
        if path is None or offset > known:
            raise frames.BrokenFrameError(f"a part of {name} does not follow the {known} bytes received")
        new = data[known - offset :]
        if new:
            state.received[name] = known + len(new)
            try:
                with os.fdopen(open_regular(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT), "ab") as file:
                    file.write(new)
            except OSError as error:
                # If the disk is full, lose this part of the log. Asking for it again would delay the end of the task.
                LOG.error("%d bytes of a log are lost: %s", len(new), error)

    @staticmethod
    def _send(state: HostState, data: bytes) -> None:
        if state.writer is not None:
            state.writer.write(data)


_LEAVE = frames.encode("leave")


def _next(state: HostState) -> bytes:
    return frames.encode("next", task_run=state.task_run)


def _placed(state: HostState, frame: Frame) -> None:
    """Note the address and the folder of the host's next task."""
    state.address, state.job_dir = str(frame.fields["address"]), str(frame.fields["job_dir"])
    state.ready.set()
