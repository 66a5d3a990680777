"""Delegation tokens out of Hadoop's token file."""

import base64

import pytest

from themis.hadoop.errors import LoginError
from themis.hadoop.webhdfs_token import delegation_token

# As `Credentials.writeTokenStorageFile` of Hadoop 3.4.2 wrote it, and below what its `Token.encodeToUrlString` gives.
LONG = bytes(range(200))
FILE = (
    b"HDTS\x00\x03"
    b"\x01x\x8f\xc8" + LONG + b"\x03\xff\x02\x03\x15HDFS_DELEGATION_TOKEN\nha-hdfs:ns"
    b"\x01y\x01\t\x01\x08\x10YARN_AM_RM_TOKEN\x0e127.0.0.1:8030"
    b"\x03zzz\x01\x07\x01\x06\x15HDFS_DELEGATION_TOKEN\r10.0.0.1:8020\x00"
)
SHORT = "AQcBBhVIREZTX0RFTEVHQVRJT05fVE9LRU4NMTAuMC4wLjE6ODAyMA"


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "tokens"
    path.write_bytes(FILE)
    return path


def test_the_token_of_a_nameservice(path):
    token = delegation_token(path, "ns")
    decoded = base64.urlsafe_b64decode(token + "=" * (-len(token) % 4))
    assert decoded.startswith(b"\x8f\xc8" + LONG + b"\x03\xff\x02\x03")
    assert token.startswith("j8gAAQIDBAUGBwgJCgsM") and token.endswith("OmhhLWhkZnM6bnM"[1:])


def test_the_token_of_an_address(path):
    assert delegation_token(path, "10.0.0.1:8020") == SHORT


def test_no_token_is_taken_from_two_others(path):
    assert delegation_token(path, "elsewhere:8020") is None


def test_a_single_token_is_taken_under_any_name(tmp_path):
    (tmp_path / "tokens").write_bytes(FILE[:5] + b"\x01" + FILE[FILE.index(b"\x03zzz") :])
    assert delegation_token(tmp_path / "tokens", "elsewhere:8020") == SHORT


def test_tokens_of_others_are_skipped(tmp_path):
    begun, ended = FILE.index(b"\x01y"), FILE.index(b"\x03zzz")
    (tmp_path / "tokens").write_bytes(FILE[:5] + b"\x01" + FILE[begun:ended] + b"\x00")
    assert delegation_token(tmp_path / "tokens", "ns") is None


@pytest.mark.parametrize("content", [b"", b"HDTS\x01xx", FILE[:100], FILE[:300], b"HDTS\x00"])
def test_a_damaged_file_is_reported(path, content):
    path.write_bytes(content)
    with pytest.raises(LoginError, match="cannot read the token file"):
        delegation_token(path, "ns")


def test_a_missing_file_is_reported(tmp_path):
    with pytest.raises(LoginError):
        delegation_token(tmp_path / "none", "ns")
