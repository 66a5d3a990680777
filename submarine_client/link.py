"""The channel to one ResourceManager, with TLS or without, and the token that its calls carry."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Generic, TypeVar

import grpc

from submarine_client.credentials import Credentials, Metadata
from submarine_client.rpc_errors import translated
from themis.addresses import grpc_target, keepalive_options
from themis.tls import Trust

S = TypeVar("S")
T = TypeVar("T")

_OPTIONS: tuple[tuple[str, int], ...] = (
    # A web proxy does not reach a ResourceManager.
    ("grpc.enable_http_proxy", 0),
)


class Link(Generic[S]):
    """A channel that is opened at the first call: only then does a ResourceManager of this machine have to run.

    Args:
        address: HOST:PORT of the ResourceManager, or several with commas between.
        make_stub: Makes the stub of a channel.
        options: More options of the channel.
        ca: The file of the authorities to trust; None: see `Credentials`.
    """

    def __init__(
        self,
        address: str,
        make_stub: Callable[[grpc.Channel], S],
        options: Sequence[tuple[str, int]] = (),
        *,
        ca: str | None = None,
    ) -> None:
        self._address = address
        self._make_stub = make_stub
        self._options = (*_OPTIONS, *options, *keepalive_options(address))
        self._credentials = Credentials(address, ca=ca)
        self._opened: tuple[grpc.Channel, S] | None = None

    @property
    def channel(self) -> grpc.Channel:
        """The channel.

        Raises:
            InputError: The file of the trusted authorities cannot be used.
        """
        return self._open()[0]

    @property
    def stub(self) -> S:
        """The stub on the channel. Raises as `channel`."""
        return self._open()[1]

    @property
    def trust(self) -> Trust | None:
        """What the channel trusts; None without TLS. Raises as `channel`."""
        return self._credentials.trust

    def call(self, make: Callable[[Metadata], T]) -> T:
        """Make a call with the caller's token, see `Credentials.call`. Raises gRPC's errors, see `translated`."""
        return self._credentials.call(make)

    @contextmanager
    def translated(self) -> Iterator[None]:
        """Turn gRPC's errors in the block into ours."""
        with translated(self._address, self._credentials.trust):
            yield

    def close(self) -> None:
        """Close the channel. Calls in progress are cancelled."""
        if self._opened is not None:
            self._opened[0].close()

    def _open(self) -> tuple[grpc.Channel, S]:
        if self._opened is None:
            target, trust, options = grpc_target(self._address), self._credentials.trust, list[tuple[str, Any]]()
            options += self._options
            if trust is None:
                channel = grpc.insecure_channel(target, options=options)
            else:
                credentials, more = trust.channel(self._address)
                channel = grpc.secure_channel(target, credentials, options=[*options, *more])
            self._opened = channel, self._make_stub(channel)
        return self._opened
