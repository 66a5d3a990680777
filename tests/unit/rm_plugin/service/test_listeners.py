"""Which addresses a ResourceManager may listen at, and what else is refused before it waits for its engine."""

from types import SimpleNamespace

import pytest

from rm_plugin.service import server
from rm_plugin.service.certificates import init_tls
from themis.config.rm_settings import RmSettings
from themis.errors import InputError, ThemisError


@pytest.fixture
def start(tmp_path, monkeypatch):
    """Starts a ResourceManager with these settings up to the point at which it would serve."""
    monkeypatch.setattr(server, "keep_private", lambda: None)
    served = []

    async def serve(settings, engine, *, standby):
        served.append(settings)
        return 0

    monkeypatch.setattr(server, "_serve", serve)

    def run(**settings):
        values = {"cluster": "unused", "state_dir": tmp_path / "state", **settings}
        assert server.run(RmSettings.model_validate(values), SimpleNamespace()) == 0
        return len(served)

    return run


@pytest.fixture
def tls(tmp_path):
    init_tls(tmp_path / "tls", [])
    return {
        "certificate": tmp_path / "tls/server.pem",
        "key": tmp_path / "tls/server-key.pem",
        "ca": tmp_path / "tls/ca.pem",
    }


@pytest.mark.parametrize("settings", [{"listen": "127.0.0.1:0"}, {"listen": "[::1]:0"}, {"page": "localhost:0"}])
def test_addresses_of_this_machine_need_nothing(start, settings):
    assert start(**settings) == 1


@pytest.mark.parametrize("key", ["listen", "page"])
def test_other_addresses_are_refused_without_encryption(start, key):
    with pytest.raises(InputError, match=f"{key}: beyond this machine, tokens would travel without encryption"):
        start(**{key: "0.0.0.0:7070"})


def test_other_addresses_are_accepted_with_encryption(start, tls):
    assert start(listen="0.0.0.0:7070", page="0.0.0.0:7071", tls=tls) == 1


def test_callers_without_a_token_are_refused_beyond_this_machine_also_with_encryption(start, tls):
    with pytest.raises(InputError, match="everybody could do everything"):
        start(listen="0.0.0.0:7070", anonymous=True, tls=tls)


def test_operator_may_accept_the_risk(start, caplog):
    assert start(listen="0.0.0.0:7070", insecure=True) == 1
    assert "insecure" in caplog.text


def test_queues_that_cannot_be_read_are_refused_at_once(start, tmp_path):
    with pytest.raises(ThemisError, match="queues"):
        start(queues=tmp_path / "queues.yaml")
