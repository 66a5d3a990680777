"""Bounds on what callers make the service hold: messages on their way, and streams that stay open.

A message may have 16 MB. gRPC buffers it whole before a method sees it, and by default as many as callers send. So the
service reads a few messages of each caller at a time. Of the others gRPC takes 64 kB, and its flow control stops the
sender.

Example: a user makes 1,000 submissions of 16 MB at once. Eight are received, the others wait. Another user's calls do
not wait for them, nor do those by which this user reads.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any, TypeVar
from weakref import WeakValueDictionary

import grpc

from themis.errors import InputError
from themis.identity import TooManyCallsError

MAX_AT_ONCE = 8
"""Messages of one caller that are received, or calls of one caller that are answered, at the same time."""

MAX_STREAMS = 200
"""Open streams of one caller, such as a `submarine app logs --follow`."""

RECEIVE_S = 30.0
"""Seconds within which a message must have come."""

_Message = TypeVar("_Message")


class Receiving:
    """What is being received and streamed, by caller."""

    def __init__(self) -> None:
        # A caller without a call is forgotten: nothing else holds its semaphore.
        self._slots: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()
        self._streams: Counter[str] = Counter()

    def slot(self, caller: str) -> asyncio.Semaphore:
        """Return what a caller holds while one of its messages is received."""
        return self._slots.setdefault(caller, asyncio.Semaphore(MAX_AT_ONCE))

    @contextlib.contextmanager
    def stream(self, caller: str) -> Iterator[None]:
        """Count a stream of a caller while it is open.

        Raises:
            TooManyCallsError: It has `MAX_STREAMS` already.
        """
        if self._streams[caller] >= MAX_STREAMS:
            raise TooManyCallsError("too many streams", value=caller, remedy=f"keep at most {MAX_STREAMS} open")
        self._streams[caller] += 1
        try:
            yield
        finally:
            self._streams[caller] -= 1
            if not self._streams[caller]:
                del self._streams[caller]

    def bounded(
        self,
        handler: Any,
        caller: str,
        refuse: Callable[[Any, Exception], Awaitable[None]],
        note_peer: Callable[[str], None],
    ) -> grpc.RpcMethodHandler[Any, Any]:
        """Return a handler that answers as `handler` does, and itself receives the one message of a call.

        Args:
            handler: Of a method that takes one message.
            caller: Who calls, and for what: calls with the same text wait for each other.
            refuse: Ends a call with the status of an error.
            note_peer: Takes the peer of each call, as gRPC names it.
        """
        codecs = (handler.request_deserializer, handler.response_serializer)

        async def answer(requests: AsyncIterator[Any], context: Any) -> Any:
            note_peer(context.peer())
            try:
                async with self.slot(caller):
                    return await handler.unary_unary(await only_one_of(requests), context)
            except InputError as error:
                await refuse(context, error)
            except grpc.aio.AbortError as error:
                # It and gRPC's state of the call refer to each other, and its frames to the message, which would all
                # stay until garbage is collected. That is rare here, and a refused submission has 16 MB.
                error.__traceback__ = error.__context__ = None
                raise

        async def stream(requests: AsyncIterator[Any], context: Any) -> AsyncIterator[Any]:
            note_peer(context.peer())
            try:
                async with self.slot(caller):
                    request = await only_one_of(requests)
                with self.stream(caller):
                    async with contextlib.aclosing(handler.unary_stream(request, context)) as answers:
                        async for message in answers:
                            yield message
            except InputError as error:
                await refuse(context, error)

        if handler.response_streaming:
            return grpc.stream_stream_rpc_method_handler(stream, *codecs)
        return grpc.stream_unary_rpc_method_handler(answer, *codecs)


async def only_one_of(messages: AsyncIterator[_Message]) -> _Message:
    """Return the message of a call that has one.

    It waits for the end of the caller's messages, too: gRPC keeps the message of a call whose end was not read.

    Raises:
        InputError: None, or more than one, came within `RECEIVE_S`.
    """
    received: list[_Message] = []
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(RECEIVE_S):
            async for message in messages:
                received.append(message)
                if len(received) > 1:
                    break
            else:
                if received:
                    return received.pop()
    raise InputError(
        "a call has one message", value=f"{len(received)} in {RECEIVE_S:g} s", remedy="send the call again"
    )
