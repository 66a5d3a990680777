"""The peers of a server's connections: none of them keeps others out by taking as many as the server has room for."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from typing import TypeVar

from themis.addresses import network_of

_Transport = TypeVar("_Transport", bound=asyncio.WriteTransport)


def least_needed(transports: Sequence[_Transport]) -> _Transport:
    """Return the connection to end for a further one: the oldest of the peer that has the most.

    So every peer gets its share, and so do honest clients behind the address of a peer that takes all.

    Args:
        transports: All connections, the oldest first; at least one.
    """
    by_peer: dict[str, list[_Transport]] = defaultdict(list)
    for transport in transports:
        # A connection may have ended before its peer could be asked for.
        address, *_ = transport.get_extra_info("peername") or ("",)
        by_peer[network_of(address)].append(transport)
    return max(by_peer.values(), key=len)[0]
