"""The page that an app master names, if it is on its own host: the ResourceManager asks no other address for it."""

from __future__ import annotations

import asyncio
import ipaddress
import re
import socket
from urllib.parse import unquote, urlsplit

from themis.threads import Threads

_PATH = re.compile(r"/?|/[A-Za-z0-9_-]{32}/")
"""The root, or one folder with the name that an app master makes up (`am.page.server`)."""
_THREADS = 4
_LIMIT_S = 5.0

Address = ipaddress.IPv4Address | ipaddress.IPv6Address


class OwnPages:
    """Judges pages in threads of its own: a name whose server is slow must not hold those that write the store."""

    def __init__(self) -> None:
        self._threads = Threads("own-page", _THREADS)

    async def find(self, page_url: str, peer: str) -> str:
        """Return `own_page`; empty if that is not known within five seconds."""
        try:
            async with asyncio.timeout(_LIMIT_S):
                return await self._threads.run(own_page, page_url, peer)
        except TimeoutError:
            return ""

    def close(self) -> None:
        """End the threads that judge nothing."""
        self._threads.close()


def peer_address(peer: str) -> str:
    """Return the IP address in gRPC's name of a peer. Empty for a process of this machine without one.

    >>> peer_address("ipv4:10.0.0.7:43122"), peer_address("ipv6:%5B::1%5D:43122"), peer_address("unix:")
    ('10.0.0.7', '::1', '')
    """
    kind, _, rest = peer.partition(":")
    if kind not in ("ipv4", "ipv6"):
        return ""
    return unquote(rest).rpartition(":")[0].strip("[]")


def own_page(page_url: str, peer: str) -> str:
    """Return the address of a page on the host that a session comes from, at a path of an app master; else nothing.

    The name of the host is resolved here only: the result has the address in place of the name. A name can have
    several addresses, and others a moment later.

    A host is the same if one of its addresses is the session's, or if both are this machine. An app master behind a
    proxy, or on a host with several addresses of which its name has other ones, has no page.

    Args:
        page_url: As the app master named it.
        peer: The peer's address as gRPC gives it.
    """
    try:
        url = urlsplit(page_url)
        port = url.port or 80
        own = _plain(ipaddress.ip_address(peer_address(peer) or "127.0.0.1"))
    except ValueError:
        return ""
    if url.scheme not in ("http", "https") or not _PATH.fullmatch(url.path) or url.query or url.fragment:
        return ""
    if not url.hostname or url.username is not None or url.password is not None:
        return ""
    try:
        found = socket.getaddrinfo(url.hostname, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return ""
    # An interface may be part of an IPv6 address.
    addresses = [ipaddress.ip_address(str(entry[4][0]).partition("%")[0]) for entry in found]
    here = _is_here(own)
    for address in addresses:
        if _plain(address) == own or (here and _is_here(address)):
            host = f"[{address}]" if address.version == 6 else str(address)
            return url._replace(netloc=f"{host}:{port}").geturl()
    return ""


def _plain(address: Address) -> Address:
    """An IPv4 address that is written as an IPv6 one, as itself."""
    mapped = getattr(address, "ipv4_mapped", None)
    return mapped if mapped is not None else address


def _is_here(address: Address) -> bool:
    """Whether an address is this machine's."""
    address = _plain(address)
    if address.is_loopback:
        return True
    if address.is_unspecified or address.is_multicast:
        return False
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.bind((str(address), 0))
    except OSError:
        return False
    return True
