"""Addresses of several ResourceManagers, of which one serves."""

import socket
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest
from free_ports import free_port

from themis.addresses import grpc_target, keepalive_options

HOST = "127.0.0.1"


def test_names_that_do_not_resolve_are_left_out():
    assert grpc_target(f"no-such-host.invalid:1,{HOST}:2") == f"ipv4:{HOST}:2"
    assert grpc_target("no-such-host.invalid:1,other.invalid:2") == "no-such-host.invalid:1"


def test_numbers_of_the_sixth_version_are_a_target_of_their_own():
    assert grpc_target("[::1]:1,[::1]:2") == "ipv6:[::1]:1,[::1]:2"


@pytest.mark.parametrize("serving", [0, 1])
def test_a_channel_to_two_addresses_finds_the_one_that_listens(serving):
    addresses = [f"{HOST}:{free_port(HOST)}" for _ in range(2)]
    server = grpc.server(ThreadPoolExecutor(1))
    server.add_insecure_port(addresses[serving])
    server.start()
    both = ",".join(addresses)
    with grpc.insecure_channel(grpc_target(both), options=keepalive_options(both)) as channel:
        grpc.channel_ready_future(channel).result(timeout=60)
    server.stop(None)


def test_a_channel_leaves_an_address_that_accepts_and_never_answers():
    """As a machine that stands still does."""
    with socket.create_server((HOST, 0)) as still:
        serving = f"{HOST}:{free_port(HOST)}"
        server = grpc.server(ThreadPoolExecutor(1))
        server.add_insecure_port(serving)
        server.start()
        both = f"{HOST}:{still.getsockname()[1]},{serving}"
        with grpc.insecure_channel(grpc_target(both), options=keepalive_options(both)) as channel:
            grpc.channel_ready_future(channel).result(timeout=60)
        server.stop(None)
