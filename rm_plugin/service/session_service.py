"""ArbiterService: the bidirectional session of every app master."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

import grpc

from rm_plugin.service import session
from rm_plugin.service.entries import AppEntry
from rm_plugin.service.manager import ResourceManager
from rm_plugin.service.refusals import refusal_text
from themis.errors import InputError, UnreachableError
from themis.wire import themis_pb2 as pb
from themis.wire import themis_pb2_grpc as rpc

LOG = logging.getLogger("themis.rm")

REGISTER_S = 30.0
"""Seconds within which a new session must register."""

if TYPE_CHECKING:
    Context = grpc.aio.ServicerContext[Any, Any]


class ArbiterService(rpc.ArbiterServiceServicer):  # type: ignore[misc]
    """Reads a session's messages into the ResourceManager and writes what it sends."""

    def __init__(self, manager: ResourceManager) -> None:
        self._manager = manager

    async def Session(
        self, request_iterator: AsyncIterator[pb.AmMessage], context: Context
    ) -> AsyncIterator[pb.RmMessage]:
        """One session: the first message must register the attempt."""
        entry, stream = await self._register(request_iterator, context)
        reader = asyncio.get_running_loop().create_task(self._read(request_iterator, entry, stream))
        try:
            async for message in stream.outgoing():
                yield message
            if stream.refusal:
                LOG.warning("a session of %s ends: %s", entry.app_id, stream.refusal)
                await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, stream.refusal)
        finally:
            reader.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await reader
            self._manager.disconnected(entry, stream)

    async def _register(
        self, messages: AsyncIterator[pb.AmMessage], context: Context
    ) -> tuple[AppEntry, session.Session]:
        try:
            async with asyncio.timeout(REGISTER_S):
                first = await anext(aiter(messages), None)
        except TimeoutError:
            first = None
        if first is not None and first.WhichOneof("body") == "register":
            try:
                return await self._manager.register(first.register, context.peer())
            except UnreachableError as error:
                # The app master tries again; a refusal would end it.
                await context.abort(grpc.StatusCode.UNAVAILABLE, refusal_text(error))
            except InputError as error:
                await context.abort(grpc.StatusCode.PERMISSION_DENIED, refusal_text(error))
        await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "a session begins with a registration")
        raise AssertionError("abort raises")

    async def _read(self, messages: AsyncIterator[pb.AmMessage], entry: AppEntry, stream: session.Session) -> None:
        try:
            async for message in messages:
                stream.refusal = self._manager.excess(entry, message)
                if stream.refusal:
                    return
                await self._manager.receive(entry, stream, message)
        finally:
            stream.close()
