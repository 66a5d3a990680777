"""ArbiterService: the bidirectional session of every app master."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable
from typing import TYPE_CHECKING, Any, TypeVar

import grpc

from rm_plugin.service import session
from rm_plugin.service.entries import AppEntry
from rm_plugin.service.manager import ResourceManager
from rm_plugin.service.own_page import peer_address
from rm_plugin.service.receiving import Receiving
from rm_plugin.service.refusals import refusal_text
from themis.addresses import network_of
from themis.attempt_proof import REFUSAL, refusal_proof
from themis.errors import InputError, UnreachableError
from themis.wire import themis_pb2 as pb
from themis.wire import themis_pb2_grpc as rpc

LOG = logging.getLogger("themis.rm")

REGISTER_S = 30.0
"""Seconds within which a new session must send its greeting, and then register."""

MAX_FIRST_BYTES = 256 * 1024
"""The longest greeting or registration. The exception that ends a session keeps it until garbage is collected."""

_Answer = TypeVar("_Answer")

if TYPE_CHECKING:
    Context = grpc.aio.ServicerContext[Any, Any]


class ArbiterService(rpc.ArbiterServiceServicer):  # type: ignore[misc]
    """Reads a session's messages into the ResourceManager and writes what it sends."""

    def __init__(self, manager: ResourceManager) -> None:
        self._manager = manager
        self._receiving = Receiving()

    async def Session(
        self, request_iterator: AsyncIterator[pb.AmMessage], context: Context
    ) -> AsyncIterator[pb.RmMessage]:
        """One session: a greeting, which is answered with a proof, and the registration of the attempt."""
        # gRPC's iterator keeps its last message until it is closed or garbage is collected.
        received: Any = aiter(request_iterator)
        async with (
            contextlib.aclosing(received) as requests,
            contextlib.aclosing(self._session(requests, context)) as messages,
        ):
            async for message in messages:
                yield message

    async def _session(
        self, requests: AsyncIterator[pb.AmMessage], context: Context
    ) -> AsyncGenerator[pb.RmMessage, None]:
        # Before anything is received: callers without a token can make the service hold a few messages of 16 MB, and no
        # more, and an app master does not wait for theirs.
        metadata = dict(context.invocation_metadata() or ())
        sender = self._manager.sessions.sender_of(metadata) or network_of(peer_address(context.peer()))
        slot = self._receiving.slot(sender)
        first = await _first(requests, slot)
        if first is not None and first.WhichOneof("body") == "greeting":
            greeting = first.greeting
            refusal = refusal_proof(
                self._manager.entries.refusal_key, greeting.app_id, greeting.attempt, greeting.nonce
            )
            proof = await _answered(self._manager.sessions.greet(greeting), context, refusal)
            yield pb.RmMessage(proof=proof)
            first = await _first(requests, slot)
        if first is None or first.WhichOneof("body") != "register":
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "a session begins with a registration")
            raise AssertionError("abort raises")
        entry, stream = await _answered(self._manager.sessions.register(first.register, context.peer()), context)
        reader = asyncio.get_running_loop().create_task(self._read(requests, entry, stream))
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
            self._manager.sessions.disconnected(entry, stream)

    async def _read(self, messages: AsyncIterator[pb.AmMessage], entry: AppEntry, stream: session.Session) -> None:
        try:
            async for message in messages:
                stream.refusal = self._manager.sessions.excess(entry, message)
                if stream.refusal:
                    return
                await self._manager.sessions.receive(entry, stream, message)
        finally:
            stream.close()


async def _first(messages: AsyncIterator[pb.AmMessage], slot: asyncio.Semaphore) -> pb.AmMessage | None:
    """Return the next message of a session that has not registered; None if none comes in time, or a long one."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(REGISTER_S), slot:
            message = await anext(aiter(messages), None)
            return message if message is not None and message.ByteSize() <= MAX_FIRST_BYTES else None
    return None


async def _answered(work: Awaitable[_Answer], context: Context, refusal: str = "") -> _Answer:
    """Return what the manager answers, or end the session with its refusal.

    `refusal` proves it. After the proof of the ResourceManager a refusal needs none.
    """
    try:
        return await work
    except UnreachableError as error:
        # The app master tries again; a refusal would end it.
        await context.abort(grpc.StatusCode.UNAVAILABLE, refusal_text(error))
    except InputError as error:
        await context.abort(grpc.StatusCode.PERMISSION_DENIED, refusal_text(error), ((REFUSAL, refusal),))
    raise AssertionError("abort raises")
