"""Addresses and ports that are free."""

import random
import socket

from themis_lab.devcluster.addresses import Port, free_addresses


def test_addresses_are_free_and_below_ephemeral_ports():
    found = free_addresses(3, random.Random(1))
    hosts = [found.master, *(found.node(index) for index in range(3))]
    assert len({*hosts}) == 4
    assert all(host.startswith("127.") and not host.startswith("127.0.") for host in hosts)
    ports = [found.port(role) for role in Port]
    assert len({*ports}) == len(Port)
    assert min(ports) >= 20000
    assert max(ports) < 32768
    for port in ports:
        with socket.socket() as server:
            server.bind((hosts[-1], port))


def test_port_in_use_is_skipped():
    first = free_addresses(2, random.Random(7))
    for host in (first.node(1), "0.0.0.0"):
        with socket.socket() as taken:
            taken.bind((host, first.port(Port.NM)))
            taken.listen()
            assert free_addresses(2, random.Random(7)) != first
    assert free_addresses(2, random.Random(7)) == first
