"""The token that a client's calls carry."""

from pathlib import Path

import pytest

from submarine_client import credentials as module
from submarine_client.credentials import Credentials
from themis.errors import InputError

ELSEWHERE = "rm.invalid:1"


@pytest.mark.parametrize("text", ["themis_a\nthemis_b", "themis_é", "themis_a themis_b", "themis_\x1b[0m"])
@pytest.mark.parametrize("in_file", [False, True])
def test_text_that_no_header_can_carry_is_refused_and_not_shown(
    text: str, in_file: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    kept = tmp_path / ".config/themis/rm.invalid_1/token"
    kept.parent.mkdir(parents=True)
    kept.write_text(text, encoding="utf-8")
    kept.chmod(0o600)
    given = {} if in_file else {"THEMIS_TOKEN": text}
    credentials = Credentials(ELSEWHERE, {"THEMIS_INSECURE": "1", **given})
    with pytest.raises(InputError, match="holds no token") as raised:
        credentials.call(lambda metadata: metadata)
    assert "themis_" not in str(raised.value)


def test_line_end_after_a_token_is_left_out() -> None:
    credentials = Credentials(ELSEWHERE, {"THEMIS_TOKEN": "themis_a\n", "THEMIS_INSECURE": "1"})
    assert credentials.call(lambda metadata: metadata) == (("authorization", "Bearer themis_a"),)


@pytest.mark.parametrize(
    ("address", "environment", "is_sent"),
    [
        ("127.0.0.1:1,localhost:2", {}, True),
        ("127.0.0.1:1,192.0.2.7:1", {}, False),
        ("127.0.0.1:1,192.0.2.7:1", {"THEMIS_INSECURE": "1"}, True),
    ],
)
def test_local_token_is_not_sent_to_another_machine_in_the_clear(
    address: str, environment: dict[str, str], is_sent: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(module, "_local_answer", lambda _addresses: ("local.token", ""))
    credentials = Credentials(address, environment)
    if is_sent:
        assert credentials.call(lambda metadata: metadata) == (("authorization", "Bearer local.token"),)
        return
    with pytest.raises(InputError, match="would travel without encryption"):
        credentials.call(lambda metadata: metadata)
