"""A stub of gRPC whose calls carry a token, for tests that call without the client library."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from submarine_client.credentials import Credentials
from themis.identity import HEADER, bearer


class AuthorizedStub:
    """Any stub; `token` returns the token of the next call."""

    def __init__(self, stub: Any, token: Callable[[], str]) -> None:
        self._stub, self._token = stub, token

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self._stub, name)
        return lambda request, **options: method(request, metadata=((HEADER, bearer(self._token())),), **options)


class LocalStub:
    """A stub whose every call asks the ResourceManager at `address`, another process, for a token of this user."""

    def __init__(self, stub: Any, address: str) -> None:
        self._stub, self._address = stub, address

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self._stub, name)

        def call(request: Any, **options: Any) -> Any:
            # A restart of the ResourceManager makes earlier tokens invalid.
            metadata = Credentials(self._address).call(lambda metadata: metadata)
            return method(request, metadata=metadata, **options)

        return call
