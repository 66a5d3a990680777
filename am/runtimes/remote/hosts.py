"""The app master's side of its task hosts: they connect, prove their seat, get their orders and send what is logged."""

from __future__ import annotations

import asyncio
import hmac
import logging
import os
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from am.runtimes.remote import frames
from am.runtimes.remote.frames import Frame
from themis.files import open_regular

LOG = logging.getLogger("themis.am.hosts")

MIRRORED = ("history.jsonl",)
"""Files that programs write in their job's folder and that the app master keeps a copy of."""


@dataclass(slots=True)
class HostState:
    """What is known of one task host, over its connections.

    Attributes:
        turn: Which task of its container it is at, or is to make ready for, from 1.
        ready: It is there for that turn; `address` and `job_dir` are of that turn then.
        order: To start the turn's task; empty before.
        received: Bytes of each file of the turn that were taken in: a host that connects again goes on from there.
        exited: The turn's task has ended, with `exit_code`.
        tidy: Nothing of the turn's task is left.
        leaving: It was told to leave, or is.
    """

    token: str = field(default_factory=lambda: secrets.token_hex(16), repr=False)
    writer: asyncio.StreamWriter | None = None
    pid: int = 0
    turn: int = 1
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


class TaskHosts:
    """Listens for task hosts. One an app master; belongs to its loop."""

    def __init__(self) -> None:
        self._hosts: dict[str, HostState] = {}
        self._server: asyncio.Server | None = None

    async def listen(self, host: str) -> int:
        """Listen on every interface when `host` is not loopback, else on loopback only; returns the port."""
        # Not None: that would open a second port, of IPv6, and which of the two comes first is chance.
        interface = host if host.startswith("127.") else "0.0.0.0"
        self._server = await asyncio.start_server(self._serve, interface, 0, limit=frames.MAX_HEADER_BYTES)
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    async def close(self) -> None:
        """Stop listening; hosts that are still connected are let go."""
        for state in self._hosts.values():
            if state.writer is not None:
                state.writer.close()
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()

    # ---- seats ----

    def expect(self, seat_id: str) -> str:
        """A host for this seat will come; returns the token by which it proves itself."""
        state = self._hosts[seat_id] = HostState()
        return state.token

    async def ready(self, seat_id: str) -> HostState:
        """The seat's host, once it is there for its next task."""
        state = self._hosts[seat_id]
        await state.ready.wait()
        return state

    async def exited(self, seat_id: str) -> None:
        """Return when the seat's host has told that its task ended; everything that it logged is there then."""
        await self._hosts[seat_id].exited.wait()

    def forget(self, seat_id: str) -> None:
        """The seat's container is gone as far as we know: a host that is there all the same is told to end its task."""
        state = self._hosts.pop(seat_id, None)
        if state is not None and state.writer is not None:
            state.writer.write(frames.encode("refused"))
            state.writer.close()

    def pid(self, seat_id: str) -> int:
        """The process id of the seat's host, on its own machine."""
        return self._hosts[seat_id].pid

    def exit_code(self, seat_id: str) -> int | None:
        """The exit code of the seat's task, once its host has told it."""
        state = self._hosts.get(seat_id)
        return None if state is None else state.exit_code

    def tidy(self, seat_id: str) -> bool:
        """Whether nothing is left of the seat's task, which has ended."""
        state = self._hosts.get(seat_id)
        return state is not None and state.tidy

    # ---- orders ----

    def renew(self, seat_id: str) -> None:
        """Have the seat's host, whose task has ended, make ready for another."""
        state = self._hosts[seat_id]
        state.turn += 1
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
    ) -> None:
        """Have the seat's host start its task; what it logs is appended to `log_path`.

        Files that it writes in its job's folder and that are MIRRORED are copied to `folder` as they grow.
        `python`: the first word of the command is the host's own interpreter.
        """
        state = self._hosts[seat_id]
        state.files = {"log": log_path, **{name: folder / name for name in MIRRORED}}
        log_path.parent.mkdir(parents=True, exist_ok=True)
        state.order = frames.encode(
            "run",
            turn=state.turn,
            command=list(command),
            python=python,
            environment=dict(environment),
            marks=dict(marks),
            mirrored=list(MIRRORED),
        )
        self._send(state, state.order)

    def stop(self, seat_id: str, grace_s: float) -> None:
        """Ask the seat's task to end, by force after `grace_s` seconds."""
        if (state := self._hosts.get(seat_id)) is not None:
            self._send(state, frames.encode("stop", grace_s=grace_s))

    def leave(self, seat_id: str) -> None:
        """Tell a host that has nothing to run, or nothing more, to end."""
        if (state := self._hosts.get(seat_id)) is not None:
            state.leaving = True
            self._send(state, _LEAVE)

    # ---- connections ----

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        state: HostState | None = None
        try:
            state = self._welcome(await frames.read(reader), writer)
            while state is not None and (frame := await frames.read(reader)) is not None:
                self._take(state, frame)
        except (ConnectionError, OSError) as error:
            LOG.info("a task host's connection broke: %s", error)
        finally:
            if state is not None and state.writer is writer:
                state.writer = None
            writer.close()

    def _welcome(self, hello: Frame | None, writer: asyncio.StreamWriter) -> HostState | None:
        if hello is None or hello.kind != "hello":
            return None
        fields = hello.fields
        state = self._hosts.get(str(fields.get("seat")))
        if state is None:
            writer.write(frames.encode("refused"))
            return None
        if not hmac.compare_digest(state.token.encode(), str(fields.get("token")).encode()):
            LOG.warning("a task host came with a wrong token")
            return None
        if state.writer is not None:
            state.writer.close()
        state.writer = writer
        state.pid = int(fields["pid"])
        writer.write(frames.encode("welcome", received=state.received))
        # What was on its way when the connection broke is said again; a host that knows it passes it over.
        if state.leaving:
            writer.write(_LEAVE)
        elif int(fields["turn"]) != state.turn:
            writer.write(_next(state))
        else:
            writer.write(state.order)
            _placed(state, hello)
        return state

    def _take(self, state: HostState, frame: Frame) -> None:
        if frame.fields.get("turn") != state.turn:
            # Of a task that has ended: it was sent again after a connection broke.
            return
        if frame.kind == "file":
            self._append(state, str(frame.fields["name"]), int(frame.fields["offset"]), frame.payload)
        elif frame.kind == "exit":
            state.exit_code, state.tidy = int(frame.fields["code"]), bool(frame.fields["tidy"])
            state.exited.set()
        elif frame.kind == "ready":
            _placed(state, frame)

    def _append(self, state: HostState, name: str, offset: int, data: bytes) -> None:
        path, known = state.files.get(name), state.received.get(name, 0)
        if path is None or offset > known:
            raise frames.BrokenFrameError(f"a part of {name} that does not follow what is there")
        new = data[known - offset :]
        if new:
            state.received[name] = known + len(new)
            try:
                with os.fdopen(open_regular(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT), "ab") as file:
                    file.write(new)
            except OSError as error:
                # A full disk costs a part of the log. Sent again and again, it would keep the task's end from us.
                LOG.error("%d bytes of a log are lost: %s", len(new), error)

    @staticmethod
    def _send(state: HostState, data: bytes) -> None:
        if state.writer is not None:
            state.writer.write(data)


_LEAVE = frames.encode("leave")


def _next(state: HostState) -> bytes:
    return frames.encode("next", turn=state.turn)


def _placed(state: HostState, frame: Frame) -> None:
    """The host says where the task of this turn is found."""
    state.address, state.job_dir = str(frame.fields["address"]), str(frame.fields["job_dir"])
    state.ready.set()
