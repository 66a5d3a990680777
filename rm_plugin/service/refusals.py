"""Refused calls: their gRPC status and text."""

from __future__ import annotations

import logging
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

import grpc

from rm_plugin.service.store import StoreError
from themis.errors import InputError, NotAllowedError, UnknownNameError
from themis.identity import NoIdentityError, TooManyCallsError

if TYPE_CHECKING:
    Context = grpc.aio.ServicerContext[Any, Any]

LOG = logging.getLogger("themis.rm.identity")

METHOD: ContextVar[str] = ContextVar("method", default="")
"""The method of the gRPC call that is being answered."""

_MAX_BYTES = 2_000
"""gRPC drops a status whose text takes more than 8 KiB on the wire, where a byte may take three."""


def refusal_text(error: Exception) -> str:
    """Return the text of an error, cut to what gRPC delivers: it may quote a name as long as a message."""
    return str(error).encode()[:_MAX_BYTES].decode(errors="ignore")


async def refuse(context: Context, error: Exception) -> None:
    """End a call with the status of an error. Never returns."""
    if isinstance(error, UnknownNameError):
        code = grpc.StatusCode.NOT_FOUND
    elif isinstance(error, NoIdentityError):
        code = grpc.StatusCode.UNAUTHENTICATED
    elif isinstance(error, TooManyCallsError):
        code = grpc.StatusCode.RESOURCE_EXHAUSTED
    elif isinstance(error, NotAllowedError):
        code = grpc.StatusCode.PERMISSION_DENIED
        LOG.warning("refused: %s: %s", METHOD.get(), refusal_text(error))
    elif isinstance(error, StoreError):
        # Clients try again. The text says that the ResourceManager was reached, but cannot write its store.
        code = grpc.StatusCode.UNAVAILABLE
        context.set_trailing_metadata((("themis-store", "unavailable"),))
    elif isinstance(error, InputError | ValueError):
        code = grpc.StatusCode.INVALID_ARGUMENT
    else:
        code = grpc.StatusCode.INTERNAL
    await context.abort(code, refusal_text(error))
