"""Pages that the ResourceManager may ask: those on the host that the app master's session comes from."""

import pytest

from rm_plugin.service.own_page import is_own_page


@pytest.mark.parametrize(
    ("page_url", "peer"),
    [
        ("http://127.0.0.1:8080/", "ipv4:127.0.0.1:40000"),
        ("http://localhost:8080/", "ipv4:127.0.0.1:40000"),
        ("http://127.0.0.1:8080", "ipv6:%5B::1%5D:40000"),
        ("http://127.0.0.1:8080/", "unix:"),
        ("http://192.0.2.7:8080/", "ipv4:192.0.2.7:40000"),
        ("http://192.0.2.7:8080/", "ipv6:%5B::ffff:192.0.2.7%5D:40000"),
    ],
)
def test_page_on_the_host_of_the_session_is_its_own(page_url, peer):
    assert is_own_page(page_url, peer)


@pytest.mark.parametrize(
    "page_url",
    [
        "http://192.0.2.8:8080/",
        "http://169.254.169.254/",
        "http://127.0.0.1:8080/",
        "http://192.0.2.7:8080/admin",
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
    assert not is_own_page(page_url, "ipv4:192.0.2.7:40000")
