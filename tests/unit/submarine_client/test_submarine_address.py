"""Where the ResourceManager is looked for."""

from __future__ import annotations

import pytest

from submarine_client.address import rm_address
from themis.errors import InputError


def test_the_flag_wins_over_the_environment_and_that_over_the_default() -> None:
    assert rm_address("a:1", {"THEMIS_RM": "b:2"}) == "a:1"
    assert rm_address(None, {"THEMIS_RM": "b:2"}) == "b:2"
    assert rm_address(None, {"THEMIS_RM": ""}) == rm_address(None, {}) == "127.0.0.1:8650"
    assert rm_address("[::1]:8650", {}) == "[::1]:8650"
    assert rm_address("a:1,b:2", {}) == "a:1,b:2"


@pytest.mark.parametrize(
    "address", ["", "host", ":1", "host:", "host:0", "host:65536", "host:x", "http://h:1", "a b:1", "a:1,", "a:1,b"]
)
def test_anything_but_host_and_port_is_refused(address: str) -> None:
    with pytest.raises(InputError, match="HOST:PORT"):
        rm_address(address, {})
    if address:
        with pytest.raises(InputError, match="THEMIS_RM"):
            rm_address(None, {"THEMIS_RM": address})
