"""What a client trusts, and why a connection with TLS fails."""

import contextlib
import socket
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from rm_plugin.service.certificates import init_tls
from themis.errors import InputError
from themis.tls import Trust, checked_authorities, tls_failure, trust_of


@contextlib.contextmanager
def server(context: ssl.SSLContext | None) -> Iterator[str]:
    """A server that accepts one connection, with TLS or without. Yields its address."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def accept() -> None:
            with contextlib.suppress(OSError):
                connection, _ = listening.accept()
                with connection:
                    if context is None:
                        connection.recv(1_000)
                        connection.sendall(b"no TLS here\r\n")
                    else:
                        context.wrap_socket(connection, server_side=True).close()

        thread = threading.Thread(target=accept)
        thread.start()
        yield f"127.0.0.1:{listening.getsockname()[1]}"
        listening.shutdown(socket.SHUT_RDWR)
        thread.join()


def of_files(folder: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "server.pem", folder / "server-key.pem")
    return context


def trusted(folder: Path, name: str = "") -> Trust:
    return Trust(authorities=(folder / "ca.pem").read_text(), name=name)


def test_accepted_certificate_is_no_failure(tmp_path: Path) -> None:
    init_tls(tmp_path, [])
    with server(of_files(tmp_path)) as address:
        assert tls_failure(address, trusted(tmp_path)) is None


def test_untrusted_expired_and_wrong_certificates_are_named_with_a_remedy(tmp_path: Path) -> None:
    init_tls(tmp_path / "ours", [])
    init_tls(tmp_path / "other", [])
    with pytest.raises(InputError):
        init_tls(tmp_path / "expired", [], days=1e-9)
    cases = (
        ("ours", trusted(tmp_path / "other"), "no trusted authority signed the certificate", "get the ca.pem"),
        ("expired", trusted(tmp_path / "expired"), "the certificate has expired", "themis rm init"),
        ("ours", trusted(tmp_path / "ours", "rm.example.org"), "the certificate is for other names", "--host NAME"),
        ("ours", trusted(tmp_path / "ours", "192.0.2.1"), "the certificate is for other names", "--host NAME"),
        ("ours", None, "this ResourceManager needs TLS", "--ca"),
    )
    for served, trust, what, remedy in cases:
        with server(of_files(tmp_path / served)) as address:
            failure = tls_failure(address, trust)
        assert isinstance(failure, InputError) and failure.what == what
        assert remedy in failure.remedy and address in str(failure.value)


def test_server_without_tls_is_named_for_a_client_with_it_alone(tmp_path: Path) -> None:
    init_tls(tmp_path, [])
    with server(None) as address:
        failure = tls_failure(address, trusted(tmp_path))
        assert failure is not None and failure.what == "this ResourceManager does not speak TLS"
    with server(None) as address:
        assert tls_failure(address, None) is None


def test_address_where_nothing_listens_is_not_a_failure_of_tls(tmp_path: Path) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        assert tls_failure(f"127.0.0.1:{unused.getsockname()[1]}", None) is None


def test_app_master_reads_the_trust_that_its_environment_carries_in_one_line(tmp_path: Path) -> None:
    init_tls(tmp_path, [])
    one = (tmp_path / "ca.pem").read_text()
    init_tls(tmp_path / "b", [])
    trust = Trust(authorities=one + (tmp_path / "b/ca.pem").read_text(), name="rm.example.org")
    environment = trust.environment()
    assert trust_of(environment) == trust
    assert not any(character.isspace() for value in environment.values() for character in value)
    assert trust_of({}) is None
    with pytest.raises(InputError, match="THEMIS_RM_CA holds no certificates"):
        trust_of({"THEMIS_RM_CA": "é"})


@pytest.mark.parametrize("text", ["", "words", "-----BEGIN CERTIFICATE-----\n-----BEGIN CERTIFICATE-----\n"])
def test_text_without_certificates_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="no certificate in PEM"):
        checked_authorities(text, "ca.pem")


def test_damaged_and_too_many_certificates_are_refused(tmp_path: Path) -> None:
    init_tls(tmp_path, [])
    text = (tmp_path / "ca.pem").read_text()
    with pytest.raises(InputError, match=r"these are no certificates.*the file"):
        checked_authorities(text.replace(text[100:104], "!!!!"), "the file")
    with pytest.raises(InputError, match="more than 64 KiB"):
        checked_authorities(text * 200, "the file")


def test_expected_name_is_the_host_of_the_first_address() -> None:
    assert Trust(authorities="").expected_name("rm1:8650,rm2:8650") == "rm1"
    assert Trust(authorities="").expected_name("[::1]:8650") == "::1"
