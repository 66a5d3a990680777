"""Where an app master says that it is: by the network of the ResourceManager, never by a name of its own for itself."""

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
def test_on_one_machine_it_stays_on_loopback(host):
    assert own_address(f"{host}:7077").startswith("127.")


def test_another_machine_is_reached_by_the_interface_towards_it(network):
    assert own_address("rm.example.org:7077") == "10.0.0.5"


def test_a_name_that_only_here_leads_to_loopback_is_not_told_to_others(network):
    assert own_address("gateway.example.org:7077") == "10.0.0.5"


def test_without_a_way_out_loopback_is_all_there_is(network):
    del network["192.0.2.1"]
    assert own_address("gateway.example.org:7077") == "127.0.0.1"
