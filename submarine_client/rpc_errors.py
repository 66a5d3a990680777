"""Turn gRPC's errors into ours."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import grpc

from themis.errors import InputError, NotAllowedError, ThemisError, UnreachableError
from themis.identity import NoIdentityError
from themis.tls import Trust, tls_failure

_BAD_INPUT = frozenset(
    {
        grpc.StatusCode.INVALID_ARGUMENT,
        grpc.StatusCode.FAILED_PRECONDITION,
        grpc.StatusCode.ALREADY_EXISTS,
        grpc.StatusCode.OUT_OF_RANGE,
        grpc.StatusCode.RESOURCE_EXHAUSTED,
    }
)
_REFUSED_CALLER = {
    grpc.StatusCode.UNAUTHENTICATED: NoIdentityError,
    grpc.StatusCode.PERMISSION_DENIED: NotAllowedError,
}


class NotFoundError(InputError):
    """The ResourceManager has no app or job of this name."""


@contextmanager
def translated(address: str, trust: Trust | None = None) -> Iterator[None]:
    """Turn gRPC errors raised within the block into ours, which name the ResourceManager by `address`.

    `trust` is what the client trusts, to find out whether TLS is the reason of a failure.
    """
    try:
        yield
    except grpc.RpcError as error:
        raise _translate(error, address, trust) from None


def unreachable(address: str) -> UnreachableError:
    """Return the error for a ResourceManager that does not answer."""
    return UnreachableError(
        "no ResourceManager answers at",
        value=address,
        remedy="start one with: themis rm start -c FILE, or name another with --rm",
    )


def _translate(error: grpc.RpcError, address: str, trust: Trust | None) -> ThemisError:
    # Errors of calls have a code and details, although the base class that gRPC declares has neither.
    code = error.code() if isinstance(error, grpc.Call) else grpc.StatusCode.UNKNOWN
    details = (error.details() if isinstance(error, grpc.Call) else str(error)) or code.name
    if code is grpc.StatusCode.UNAVAILABLE:
        # A ResourceManager that cannot write its store says so; otherwise it did not answer at all.
        answered = isinstance(error, grpc.Call) and "themis-store" in dict(error.trailing_metadata() or ())
        return UnreachableError(details) if answered else (tls_failure(address, trust) or unreachable(address))
    if code is grpc.StatusCode.DEADLINE_EXCEEDED:
        return UnreachableError("the ResourceManager did not answer in time", value=address, remedy="try again")
    if code is grpc.StatusCode.NOT_FOUND:
        return NotFoundError(details)
    if code in _REFUSED_CALLER:
        return _REFUSED_CALLER[code](details)
    if code in _BAD_INPUT:
        return InputError(details)
    if code is grpc.StatusCode.UNIMPLEMENTED:
        remedy = "are the client and the ResourceManager of one version?"
        return InputError(f"the service at {address} does not know this call", remedy=remedy)
    return ThemisError(f"the ResourceManager at {address} failed", value=details, remedy="its log says more")
