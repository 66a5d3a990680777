"""Ports to listen on later. The kernel does not assign them to other processes in between."""

import itertools
import os
import random
import socket

_PORTS = range(10_000, 20_000)
"""Below the ephemeral ports of Linux (net.ipv4.ip_local_port_range, from 32768)."""
_untried = itertools.cycle(random.Random(os.getpid()).sample(_PORTS, len(_PORTS)))


def free_port(host: str) -> int:
    """Return a free port of this address: another one at each call and in each test process."""
    for port in itertools.islice(_untried, len(_PORTS)):
        try:
            socket.create_server((host, port)).close()
        except OSError:
            continue
        return port
    raise OSError(f"no free port on {host}")
