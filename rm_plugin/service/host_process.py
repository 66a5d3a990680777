"""The agent host as a child process that is asked over a pipe, and started again whenever it is gone."""

from __future__ import annotations

import asyncio
import logging
import struct
from collections.abc import Sequence
from typing import Protocol

from themis.errors import ThemisError
from themis.python_programs import module_command
from themis.wire import themis_pb2 as pb

LOG = logging.getLogger("themis.rm")

HOST_COMMAND = module_command("am.agent_host")
REPLY_S = 60.0
"""Seconds until a host that has not answered a request is killed and replaced."""

_LENGTH = struct.Struct(">I")


class HostLostError(ThemisError):
    """The agent host is gone with everything that it knew; the next request starts another one."""


class AgentHost(Protocol):
    """Answers for apps without an app master. Ask it one request at a time."""

    async def ask(self, request: pb.HostRequest) -> pb.HostReply:
        """Return the reply to a request. Raises HostLostError, also if the host could not be started."""
        ...

    async def close(self) -> None:
        """End the host."""
        ...


class HostProcess:
    """A process `am.agent_host`. It ends by itself when this process dies, since its pipe closes."""

    def __init__(self, command: Sequence[str] = HOST_COMMAND, reply_s: float = REPLY_S) -> None:
        self._command, self._reply_s = tuple(command), reply_s
        self._process: asyncio.subprocess.Process | None = None

    @property
    def pid(self) -> int | None:
        """The id of the present process; None before the first request."""
        return None if self._process is None else self._process.pid

    async def ask(self, request: pb.HostRequest) -> pb.HostReply:
        """Write a request and read its reply; starts the process if there is none."""
        try:
            if self._process is None:
                self._process = await asyncio.create_subprocess_exec(
                    *self._command,
                    stdin=asyncio.subprocess.PIPE,
                    stdout=asyncio.subprocess.PIPE,
                    # Ctrl-C in a terminal is not for it. Children in other sessions are app masters and orphans.
                    process_group=0,
                )
            async with asyncio.timeout(self._reply_s):
                return await _exchange(self._process, request)
        except (TimeoutError, OSError, asyncio.IncompleteReadError) as error:
            await self.close()
            raise HostLostError("the agent host is gone", value=type(error).__name__) from error
        except BaseException:
            # The next request would read this one's reply.
            await self.close()
            raise

    async def close(self) -> None:
        """Kill the process, if there is one."""
        process, self._process = self._process, None
        if process is not None and process.returncode is None:
            process.kill()
            await process.wait()


async def _exchange(process: asyncio.subprocess.Process, request: pb.HostRequest) -> pb.HostReply:
    assert process.stdin is not None and process.stdout is not None
    content = request.SerializeToString()
    process.stdin.write(_LENGTH.pack(len(content)) + content)
    await process.stdin.drain()
    (size,) = _LENGTH.unpack(await process.stdout.readexactly(_LENGTH.size))
    return pb.HostReply.FromString(await process.stdout.readexactly(size))
