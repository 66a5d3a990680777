"""Ports to listen on later: nobody is given them in between, as happens to one that the kernel chose and took back."""

import itertools
import os
import random
import socket

_PORTS = range(10_000, 20_000)
"""Below those that Linux gives to whoever asks for any (net.ipv4.ip_local_port_range, from 32768)."""
_untried = itertools.cycle(random.Random(os.getpid()).sample(_PORTS, len(_PORTS)))


def free_port(host: str) -> int:
    """A port of that address on which nobody listens; another at each call, and others in each process of the tests."""
    for port in itertools.islice(_untried, len(_PORTS)):
        try:
            socket.create_server((host, port)).close()
        except OSError:
            continue
        return port
    raise OSError(f"no free port on {host}")
