"""Pages that the ResourceManager may ask: those on the host that the app master's session comes from."""

import asyncio
import socket
import threading

import psutil
import pytest

from rm_plugin.service.own_page import OwnPages, own_page


@pytest.mark.parametrize(
    ("page_url", "peer"),
    [
        ("http://127.0.0.1:8080/", "ipv4:127.0.0.1:40000"),
        ("http://localhost:8080/", "ipv4:127.0.0.1:40000"),
        ("http://127.0.0.1:8080", "ipv6:%5B::1%5D:40000"),
        ("http://127.0.0.1:8080/", "unix:"),
        ("http://127.0.0.1:8080/" + "aB3_-" * 6 + "xy/", "unix:"),
        ("http://192.0.2.7:8080/", "ipv4:192.0.2.7:40000"),
        ("http://192.0.2.7:8080/", "ipv6:%5B::ffff:192.0.2.7%5D:40000"),
    ],
)
def test_page_on_the_host_of_the_session_is_its_own(page_url, peer):
    assert own_page(page_url, peer).startswith(("http://127.0.0.1:8080", "http://192.0.2.7:8080", "http://[::1]:8080"))


@pytest.mark.parametrize(
    "page_url",
    [
        "http://192.0.2.8:8080/",
        "http://169.254.169.254/",
        "http://127.0.0.1:8080/",
        "http://192.0.2.7:8080/admin",
        "http://192.0.2.7:8080/" + "a" * 32,
        "http://192.0.2.7:8080/" + "a" * 32 + "/b/",
        "http://192.0.2.7:8080/?stop=yes",
        "http://user@192.0.2.7:8080/",
        "ftp://192.0.2.7/",
        "http://192.0.2.7:99999/",
        "http://[broken/",
        "http:///",
        "http://" + "x" * 4000,
    ],
)
def test_any_other_address_is_not(page_url):
    assert not own_page(page_url, "ipv4:192.0.2.7:40000")


def test_name_is_resolved_once_and_only_the_address_of_the_session_is_kept(monkeypatch):
    """The name's owner chooses its addresses, and others for the next question."""
    found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, 80)) for address in ("169.254.169.254", "192.0.2.7")]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_args, **_named: found)
    page_url = f"http://both.example:8080/{'s' * 32}/"
    assert own_page(page_url, "ipv4:192.0.2.7:40000") == f"http://192.0.2.7:8080/{'s' * 32}/"


def test_page_at_an_address_of_ipv6_has_it_in_brackets():
    assert own_page("http://[2001:db8::7]:8080/", "ipv6:%5B2001:db8::7%5D:40000") == "http://[2001:db8::7]:8080/"


def test_name_that_takes_long_to_resolve_is_refused_and_holds_no_other_thread(monkeypatch):
    resolved = threading.Event()
    monkeypatch.setattr("rm_plugin.service.own_page._LIMIT_S", 0.2)
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_args, **_named: resolved.wait(30) and [])

    async def scenario():
        pages = OwnPages()
        # More pages than the default pool has threads.
        asked = asyncio.gather(*(pages.find("http://slow.example/", "ipv4:192.0.2.7:1") for _ in range(60)))
        await asyncio.wait_for(asyncio.to_thread(lambda: None), 5)
        assert not any(await asked)
        resolved.set()
        pages.close()

    asyncio.run(scenario())


OTHERS = [
    each.address
    for addresses in psutil.net_if_addrs().values()
    for each in addresses
    if each.family == socket.AF_INET and not each.address.startswith("127.")
]


@pytest.mark.skipif(not OTHERS, reason="this machine has no address but that of its loopback")
def test_page_at_another_address_of_the_same_machine_is_its_own():
    assert own_page(f"http://{OTHERS[0]}:8080/", "ipv4:127.0.0.1:40000") == f"http://{OTHERS[0]}:8080/"
