"""Where an app master reads its token, and that nothing of it is left there."""

import io

import pytest

from am.attempt_token import read_token
from themis.errors import InputError
from themis.hadoop.webhdfs_token import APP_TOKEN


def test_file_with_the_token_is_gone_once_it_is_read(tmp_path):
    path = tmp_path / ".am-token"
    path.write_text("abc")
    assert read_token({"THEMIS_TOKEN_FILE": str(path)}) == "abc"
    assert not path.exists()


def test_standard_input_is_read_without_a_file(monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO("abc"))
    assert read_token({}) == "abc"


@pytest.mark.parametrize("environment", [{"THEMIS_TOKEN_FILE": "/nowhere"}, {}, {"THEMIS_ENGINE": "yarn"}])
def test_attempt_without_a_token_is_refused(environment, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO(""))
    with pytest.raises(InputError):
        read_token(environment)


def field(data):
    return bytes([len(data)]) + data


def test_token_of_a_container_is_among_the_secrets_of_its_credentials(tmp_path):
    hdfs = field(b"alias") + field(b"id") + field(b"password") + field(b"HDFS_DELEGATION_TOKEN") + field(b"ns")
    other, ours = field(b"other") + field(b"x"), field(APP_TOKEN.encode()) + field(b"abc")
    path = tmp_path / "tokens"
    path.write_bytes(b"HDTS\0" + bytes([1]) + hdfs + bytes([2]) + other + ours)
    assert read_token({"THEMIS_ENGINE": "yarn", "HADOOP_TOKEN_FILE_LOCATION": str(path)}) == "abc"
    path.write_bytes(b"HDTS\0" + bytes([1]) + hdfs + bytes([0]))
    with pytest.raises(InputError, match="no token"):
        read_token({"THEMIS_ENGINE": "yarn", "HADOOP_TOKEN_FILE_LOCATION": str(path)})
