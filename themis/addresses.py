"""Addresses of ResourceManagers: `HOST:PORT`, or several with commas between, of which one serves at a time.

And of their peers, by network.
"""

from __future__ import annotations

import ipaddress
import socket

from themis.number_parsing import as_whole


def keepalive_options(addresses: str) -> tuple[tuple[str, int], ...]:
    """Return options of a channel to several addresses, so that it leaves a machine that is down.

    Such a machine closes no connection. Without pings a client would wait for it for a quarter of an hour. The last
    option is also the time limit of an attempt to connect, during which no other address is tried again.
    """
    if "," not in addresses:
        return ()
    return (
        ("grpc.keepalive_time_ms", 10_000),
        ("grpc.keepalive_timeout_ms", 10_000),
        ("grpc.min_reconnect_backoff_ms", 5_000),
    )


def is_address(text: str) -> bool:
    """Whether a text is one HOST:PORT.

    >>> is_address("rm1:8650"), is_address("rm1"), is_address("http://rm1:8650")
    (True, False, False)
    """
    host, _, port = text.rpartition(":")
    plain = not any(character.isspace() or character in "/," for character in host)
    return bool(host) and plain and 0 < (as_whole(port) or 0) < 65536


def network_of(address: str) -> str:
    """Return what one peer has of addresses: one of IPv4, and of IPv6 all that share their first 64 bits.

    Any process of this machine can use all of its loopback addresses, so they are one peer.

    >>> network_of("::ffff:192.0.2.1"), network_of("2001:db8::7"), network_of("127.0.0.2")
    ('192.0.2.1/32', '2001:db8::/64', '127.0.0.0/8')
    """
    try:
        known = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return "an unknown address"
    known = getattr(known, "ipv4_mapped", None) or known
    bits = 64 if known.version == 6 else 8 if known.is_loopback else 32
    return str(ipaddress.ip_network((known, bits), strict=False))


def grpc_target(addresses: str) -> str:
    """Return the target of a gRPC channel to whichever of several addresses accepts connections.

    gRPC tries the addresses of one target in turn, again after each loss of the connection. It knows several addresses
    only as numbers, so this function resolves names. Names that do not resolve now are left out.

    >>> grpc_target("rm1:8650")
    'rm1:8650'
    >>> grpc_target("127.0.0.1:8650,127.0.0.1:8651")
    'ipv4:127.0.0.1:8650,127.0.0.1:8651'
    """
    if "," not in addresses:
        return addresses
    found: dict[socket.AddressFamily, list[str]] = {socket.AF_INET: [], socket.AF_INET6: []}
    for address in addresses.split(","):
        host, _, port = address.rpartition(":")
        try:
            resolved = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM)
        except OSError:
            continue
        for family, _type, _protocol, _name, place in resolved:
            if family in found:
                found[family].append(f"{place[0]}:{port}" if family == socket.AF_INET else f"[{place[0]}]:{port}")
    for family, scheme in ((socket.AF_INET, "ipv4"), (socket.AF_INET6, "ipv6")):
        if found[family]:
            return f"{scheme}:" + ",".join(dict.fromkeys(found[family]))
    return addresses.partition(",")[0]
