"""Ports to listen on later. The kernel does not assign them to other processes in between."""

import itertools
import os
import random
import socket

_WORKER = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
_PORTS = range(10_000 + _WORKER, 20_000, int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1")))
"""Below the ephemeral ports of Linux (net.ipv4.ip_local_port_range, from 32768). Each process of a run has its own."""
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
