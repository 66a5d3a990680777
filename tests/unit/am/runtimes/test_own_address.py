"""The address that an app master reports: the one on the ResourceManager's network."""

import pytest

from am.runtimes.remote import address
from am.runtimes.remote.address import own_address


@pytest.fixture
def network(monkeypatch):
    """A machine that reaches the outside from 10.0.0.5, where its own name leads to loopback; None: no way out."""
    ways = {"gateway.example.org": "127.0.0.1", "rm.example.org": "10.0.0.5", "192.0.2.1": "10.0.0.5"}

    def source(host, port):
        assert port == 7077
        if host not in ways:
            raise OSError("Network is unreachable")
        return ways[host]

    monkeypatch.setattr(address, "_source", source)
    return ways


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.7", "localhost"])
def test_loopback_resource_manager_gives_loopback(host):
    assert own_address(f"{host}:7077").startswith("127.")


def test_remote_resource_manager_gives_interface_towards_it(network):
    assert own_address("rm.example.org:7077") == "10.0.0.5"


def test_own_name_on_loopback_gives_network_address(network):
    assert own_address("gateway.example.org:7077") == "10.0.0.5"


def test_no_network_gives_loopback(network):
    del network["192.0.2.1"]
    assert own_address("gateway.example.org:7077") == "127.0.0.1"
