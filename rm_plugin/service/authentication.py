"""Who calls: an interceptor of gRPC that finds the caller, and the socket that gives local users tokens.

No message of a caller without an identity is received: gRPC would buffer 16 MB for each of its calls.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import struct
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from functools import partial
from typing import Any

import grpc

from rm_plugin.service.identities import Identities, user_name
from rm_plugin.service.receiving import Receiving
from rm_plugin.service.refusals import METHOD, refuse
from themis.errors import InputError
from themis.identity import HEADER, Identity, NoIdentityError, TooManyCallsError, local_socket, token_of
from themis.threads import Threads

LOG = logging.getLogger("themis.rm.identity")

_OF_ATTEMPTS = "/themis.v1.ArbiterService/"
"""Calls that carry the token of an attempt in their first message."""
_OF_ENGINE = frozenset(f"/themis.v1.ClientService/{name}" for name in ("Submit", "Validate", "Kill", "Pause", "Resume"))
"""Calls that may wait for the engine, such as a slow YARN. Their callers can read meanwhile."""
_CREDENTIALS = struct.Struct("3i")
_LOOKUPS = 16
"""Names of users that are looked up at a time: twice what one user's clients take."""

_CALLER: ContextVar[Identity] = ContextVar("caller")
_CHECK: ContextVar[Callable[[], None]] = ContextVar("check")


def set_caller(identity: Identity) -> None:
    """Set the caller of the gRPC call that the present task answers."""
    _CALLER.set(identity)


def caller() -> Identity:
    """Return the caller of the gRPC call that is being answered. Raises LookupError outside of such a call."""
    return _CALLER.get()


def check_caller() -> None:
    """Raise NoIdentityError if the caller's token was revoked or has expired since the call began."""
    _CHECK.get(lambda: None)()


class Authentication(grpc.aio.ServerInterceptor):
    """Finds the caller of every call; one without an identity, or too many, is refused before its service.

    Args:
        identities: Knows the tokens.
        note_user: Takes the peer of a call, as gRPC names it, and its user.
    """

    def __init__(self, identities: Identities, note_user: Callable[[str, str], None]) -> None:
        self._identities, self._note_user = identities, note_user
        self._receiving = Receiving()

    async def intercept_service(
        self, continuation: Callable[[Any], Awaitable[Any]], handler_call_details: Any
    ) -> grpc.RpcMethodHandler[Any, Any]:
        """Set the caller for the service, or return a handler that refuses the call."""
        if handler_call_details.method.startswith(_OF_ATTEMPTS):
            handler: grpc.RpcMethodHandler[Any, Any] = await continuation(handler_call_details)
            return handler
        header = dict(handler_call_details.invocation_metadata or ()).get(HEADER, "")
        try:
            # gRPC runs this and the service's method in one task, which has a context of its own.
            token = token_of(header)
            identity = self._identities.of_token(token)
            self._identities.count_call(identity)
            set_caller(identity)
            METHOD.set(handler_call_details.method)
            _CHECK.set(partial(self._identities.check_not_revoked, token))
        except (NoIdentityError, TooManyCallsError) as error:
            refused: Exception = error

            async def refusal(_requests: object, context: Any) -> None:
                await refuse(context, refused)

            # Not for a message, which gRPC would receive before it calls this.
            return grpc.stream_unary_rpc_method_handler(refusal)
        handler = await continuation(handler_call_details)
        if identity.is_admin or handler is None:
            return handler
        kind = "changes" if handler_call_details.method in _OF_ENGINE else "reads"

        def note(peer: str) -> None:
            self._note_user(peer, identity.user)

        return self._receiving.bounded(handler, f"{identity.user} {kind}", refuse, note)


class LocalTokens:
    """Listens on the Unix socket of a port, and writes a token to each client for the client's own user.

    With TLS, a line with the token is followed by the authorities that the client shall trust, in PEM. Of a user eight
    clients are answered at a time, up to 200 wait, and further ones are closed: each has a file handle here.
    """

    def __init__(self, identities: Identities, authorities: str = "") -> None:
        self._identities = identities
        self._authorities = authorities
        self._receiving = Receiving()
        # Names of users may come from a directory service, which may be slow.
        self._lookups = Threads("user-names", _LOOKUPS)
        self._server: asyncio.Server | None = None

    async def start(self, port: int) -> None:
        """Listen. Raises InputError if another process has the socket."""
        try:
            self._server = await asyncio.start_unix_server(self._give, local_socket(port))
        except OSError as error:
            remedy = "end the process that has it (`ss -xlp | grep themis-rm`), or listen at another port"
            raise InputError(
                "the socket for users of this machine is taken", value=f"@{local_socket(port)[1:]}", remedy=remedy
            ) from error

    async def stop(self) -> None:
        """Stop listening."""
        if self._server is not None:
            self._server.close()
        self._lookups.close()

    async def _give(self, _reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, TooManyCallsError):
            credentials = writer.get_extra_info("socket").getsockopt(
                socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size
            )
            _pid, uid, _gid = _CREDENTIALS.unpack(credentials)
            with self._receiving.stream(str(uid)):
                async with self._receiving.slot(str(uid)):
                    user = await self._lookups.run(user_name, uid)
                token = self._identities.local_token(uid, user)
                writer.write((f"{token}\n{self._authorities}" if self._authorities else token).encode())
                await writer.drain()
        writer.close()
