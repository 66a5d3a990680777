"""`themis rm start` with a state_dir that cannot be used: exit 2, one line with a remedy, no traceback."""

import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from rm_plugin.service.certificates import init_tls
from themis_cli.main import main

CLUSTER = "name: c\ndevices: {gpu: {emulated: true}}\nmachines: [{prefix: m, slots: [2], racks: [r]}]\n"


def refusal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> str:
    (tmp_path / "cluster.yaml").write_text(CLUSTER)
    settings = tmp_path / "rm.yaml"
    settings.write_text(f"cluster: {tmp_path}/cluster.yaml\nstate_dir: {tmp_path}/state\nlisten: 127.0.0.1:0\n")
    assert main(["rm", "start", "-c", str(settings)]) == 2
    output = capsys.readouterr()
    assert output.out == "" and output.err.count("\n") == 1
    return output.err


@pytest.fixture(autouse=True)
def umask_is_restored() -> Iterator[None]:
    """The command makes all files of its process private."""
    before = os.umask(0o077)
    os.umask(before)
    yield
    os.umask(before)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    (tmp_path / "state").mkdir()
    return tmp_path / "state" / "rm.sqlite"


def test_file_that_is_no_store_is_refused(tmp_path, store, capsys):
    store.write_bytes(b"not a data base at all " * 100)
    assert refusal(tmp_path, capsys) == (
        f"themis: the file is no store (file is not a database): '{store}';"
        " move the file away, or name another state_dir\n"
    )


def test_store_in_use_is_refused(tmp_path, store, capsys):
    with store.with_name("rm.sqlite.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        error = refusal(tmp_path, capsys)
    assert error == (
        f"themis: another ResourceManager holds the store: '{store}'; stop it, or name another state_dir\n"
    )


def test_file_instead_of_folder_is_refused(tmp_path, capsys):
    (tmp_path / "state").write_text("a file")
    error = refusal(tmp_path, capsys)
    assert error.startswith(f"themis: cannot make the folder of the store (File exists): '{tmp_path}/state'; ")


@pytest.mark.parametrize("line", ["listen: 0.0.0.0:0", "page: 192.0.2.1:0"])
def test_address_beyond_loopback_is_refused_without_insecure(tmp_path, capsys, line):
    (tmp_path / "cluster.yaml").write_text(CLUSTER)
    settings = tmp_path / "rm.yaml"
    settings.write_text(f"cluster: {tmp_path}/cluster.yaml\nstate_dir: {tmp_path}/state\n{line}\n")
    assert main(["rm", "start", "-c", str(settings)]) == 2
    error = capsys.readouterr().err
    key, value = line.split(": ")
    assert error.startswith(f"themis: {key}: beyond this machine, tokens would travel without encryption: '{value}'; ")
    assert "insecure: true" in error and error.count("\n") == 1


def test_anonymous_callers_beyond_loopback_need_insecure_also_with_tls(tmp_path, capsys):
    init_tls(tmp_path / "tls", [])
    (tmp_path / "cluster.yaml").write_text(CLUSTER)
    settings = tmp_path / "rm.yaml"
    tls = "tls: {certificate: tls/server.pem, key: tls/server-key.pem, ca: tls/ca.pem}"
    settings.write_text(f"cluster: cluster.yaml\nstate_dir: state\nlisten: 0.0.0.0:0\nanonymous: true\n{tls}\n")
    assert main(["rm", "start", "-c", str(settings)]) == 2
    assert "listen: beyond this machine, everybody could do everything" in capsys.readouterr().err


def test_files_of_tls_are_relative_to_the_settings_file_and_must_exist(tmp_path, capsys):
    (tmp_path / "cluster.yaml").write_text(CLUSTER)
    settings = tmp_path / "rm.yaml"
    tls = "tls: {certificate: tls/server.pem, key: tls/server-key.pem, ca: tls/ca.pem}"
    settings.write_text(f"cluster: cluster.yaml\nstate_dir: state\nlisten: 127.0.0.1:0\n{tls}\n")
    assert main(["rm", "start", "-c", str(settings)]) == 2
    error = capsys.readouterr().err
    assert f"tls: a file cannot be read: '{tmp_path}/tls/server.pem'" in error and error.count("\n") == 1


def test_standby_without_a_shared_state_is_refused(tmp_path, capsys):
    (tmp_path / "cluster.yaml").write_text(CLUSTER)
    settings = tmp_path / "rm.yaml"
    settings.write_text(f"cluster: {tmp_path}/cluster.yaml\nstate_dir: {tmp_path}/state\n")
    assert main(["rm", "start", "-c", str(settings), "--standby"]) == 2
    assert "set standby.enabled" in capsys.readouterr().err
