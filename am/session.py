"""The app master's side of its session with the ResourceManager: kept open, and registered again after every break."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import grpc

from themis.addresses import grpc_target, keepalive_options
from themis.attempt_proof import REFUSAL, hashed, is_refusal_proof, is_rm_proof, session_metadata
from themis.clock import Clock
from themis.errors import UnreachableError
from themis.tls import Trust
from themis.wire import themis_pb2 as pb
from themis.wire import themis_pb2_grpc as rpc
from themis.wire.values import ROUND_ANSWERS

LOG = logging.getLogger("themis.am.session")

_MESSAGE_BYTES = 16 * 1024 * 1024
_OPTIONS = [
    ("grpc.max_receive_message_length", _MESSAGE_BYTES),
    ("grpc.max_send_message_length", _MESSAGE_BYTES),
    # A restarted ResourceManager is to be found again within a second, not after gRPC's usual two minutes.
    ("grpc.initial_reconnect_backoff_ms", 200),
    ("grpc.max_reconnect_backoff_ms", 1000),
]
_RETRY_S = 0.3
_ANSWER_S = 30.0
"""How long the first answer may take, also of a busy ResourceManager. Whoever is silent longer counts as away."""

_REFUSED = grpc.StatusCode.PERMISSION_DENIED
_LASTING = ("release", "job_event", "finish")
"""Messages that must arrive: they are sent again after a break until they are acknowledged."""

MakeRegister = Callable[[], pb.Register]
OnMessage = Callable[[pb.RmMessage], None]


class _StrangerError(Exception):
    """Another process than the ResourceManager of this attempt answers: it gets no token, and gives no orders."""


class RmSession:
    """Sends and receives over one bidirectional stream at a time.

    Args:
        address: `host:port` of the ResourceManager, or several with commas between.
        register: Makes the registration of the moment, at every (re)connection. Its token goes only to the
            ResourceManager that launched the attempt.
        on_message: Called for every message except acknowledgements' effect on the outbox.
        clock: For `sent_at_s`, when each message was sent that will be acknowledged.
        give_up_s: Seconds for which the ResourceManager may be unreachable before `run` gives up.
        trust: What the ResourceManager's certificate must be; None without TLS.
        options: More options of the channel.
    """

    def __init__(
        self,
        address: str,
        register: MakeRegister,
        on_message: OnMessage,
        *,
        clock: Clock,
        give_up_s: float,
        trust: Trust | None = None,
        options: Sequence[tuple[str, int]] = (),
    ) -> None:
        self.sent_at_s: dict[int, float] = {}
        self._clock = clock
        self._address = address
        self._register = register
        self._on_message = on_message
        self._give_up_s = give_up_s
        self._trust = trust
        self._options = options
        self._next_id = 1
        self._outgoing: asyncio.Queue[pb.AmMessage | None] | None = None
        self._unacknowledged: dict[int, pb.AmMessage] = {}
        self._emptied = asyncio.Event()
        self._emptied.set()

    def send(self, message: pb.AmMessage) -> None:
        """Send a message now, or when the session is available again if it must arrive; else it is dropped."""
        message.id = self._next_id
        self._next_id += 1
        body = message.WhichOneof("body")
        if body in _LASTING:
            self._unacknowledged[message.id] = message
            self._emptied.clear()
        if self._outgoing is not None:
            if body not in ROUND_ANSWERS:
                self.sent_at_s[message.id] = self._clock.now_s()
            self._outgoing.put_nowait(message)

    async def delivered(self) -> None:
        """Return once everything that must arrive has been acknowledged."""
        await self._emptied.wait()

    async def run(self) -> None:
        """Keep the session until cancelled; raises UnreachableError when the ResourceManager stays away or refuses.

        A refusal needs a proof, as orders do. Without one, the ResourceManager counts as away.
        """
        loop = asyncio.get_running_loop()
        away_since_s, logged_since_s = loop.time(), -1.0
        target = await asyncio.to_thread(grpc_target, self._address)
        options = [*_OPTIONS, *keepalive_options(self._address), *self._options]
        async with _channel(target, self._address, self._trust, options) as channel:
            while True:
                try:
                    async for message in self._stream(rpc.ArbiterServiceStub(channel)):
                        away_since_s = loop.time()
                        self._take(message)
                except (grpc.aio.AioRpcError, _StrangerError) as error:
                    reason = str(error) if isinstance(error, _StrangerError) else error.details()
                    if isinstance(error, grpc.aio.AioRpcError) and error.code() is _REFUSED:
                        what = f"what listens at {self._address} refuses this attempt"
                        raise UnreachableError(what, value=reason) from None
                    # Once per absence, which may last for hours.
                    if logged_since_s != away_since_s:
                        LOG.info("session broke, trying again every %g s: %s", _RETRY_S, reason)
                        logged_since_s = away_since_s
                finally:
                    self._outgoing = None
                    self.sent_at_s.clear()
                if loop.time() - away_since_s > self._give_up_s:
                    raise UnreachableError("the ResourceManager is unavailable", value=self._address)
                await asyncio.sleep(_RETRY_S)

    async def _stream(self, stub: rpc.ArbiterServiceStub) -> AsyncIterator[pb.RmMessage]:
        """Yield what the ResourceManager sends, once it has proven itself and the attempt is registered."""
        outgoing: asyncio.Queue[pb.AmMessage | None] = asyncio.Queue()
        attempt, nonce = self._register(), secrets.token_hex(16)
        greeting = pb.Greeting(app_id=attempt.app_id, attempt=attempt.attempt, nonce=nonce)
        outgoing.put_nowait(pb.AmMessage(greeting=greeting))
        metadata = session_metadata(hashed(attempt.token), attempt.app_id, nonce)
        call = stub.Session(_drain(outgoing), metadata=metadata)
        try:
            messages = aiter(call)
            try:
                async with asyncio.timeout(_ANSWER_S):
                    first = await anext(messages, pb.RmMessage())
            except TimeoutError:
                raise _StrangerError("what listens there does not answer") from None
            except grpc.aio.AioRpcError as error:
                proof = dict(error.trailing_metadata() or ()).get(REFUSAL, "")
                if error.code() is _REFUSED and not is_refusal_proof(proof, attempt.token, attempt.attempt, nonce):
                    raise _StrangerError("what listens there refuses this attempt, and proves nothing") from None
                raise
            if not is_rm_proof(first.proof.proof, attempt.token, attempt.app_id, nonce):
                raise _StrangerError("what listens there is not the ResourceManager of this attempt")
            outgoing.put_nowait(pb.AmMessage(register=self._register()))
            for message in self._pending():
                outgoing.put_nowait(message)
            self._outgoing = outgoing
            async for message in messages:
                yield message
        finally:
            call.cancel()
            # gRPC still waits for the next message of a broken stream.
            outgoing.put_nowait(None)

    def _pending(self) -> Sequence[pb.AmMessage]:
        return [self._unacknowledged[number] for number in sorted(self._unacknowledged)]

    def _take(self, message: pb.RmMessage) -> None:
        if message.WhichOneof("body") == "acknowledge":
            self._unacknowledged.pop(message.acknowledge.of_id, None)
            if not self._unacknowledged:
                self._emptied.set()
        self._on_message(message)


def _channel(target: str, address: str, trust: Trust | None, options: list[tuple[str, Any]]) -> grpc.aio.Channel:
    if trust is None:
        return grpc.aio.insecure_channel(target, options=options)
    credentials, more = trust.channel(address)
    return grpc.aio.secure_channel(target, credentials, options=[*options, *more])


async def _drain(outgoing: asyncio.Queue[pb.AmMessage | None]) -> AsyncIterator[pb.AmMessage]:
    """Yield the messages until None."""
    with contextlib.suppress(asyncio.CancelledError):
        while (message := await outgoing.get()) is not None:
            yield message
