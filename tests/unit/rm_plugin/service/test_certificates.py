"""The certificate of a ResourceManager: made, renewed, and refused if clients would refuse it."""

import ssl
import time
from pathlib import Path

import pytest

from rm_plugin.service.certificates import ServerTls, init_tls, load_tls
from themis.config.rm_settings import TlsSettings
from themis.errors import InputError


def files(folder: Path, **others: Path) -> TlsSettings:
    named = {"certificate": folder / "server.pem", "key": folder / "server-key.pem", "ca": folder / "ca.pem"}
    return TlsSettings(**{**named, **others})


def loaded(settings: TlsSettings) -> ServerTls:
    tls = load_tls(settings)
    assert tls is not None
    return tls


def test_new_certificate_holds_the_names_of_this_machine_and_those_that_were_given(tmp_path: Path) -> None:
    made = init_tls(tmp_path / "tls", ["rm.example.org", "192.0.2.7"], days=30)
    for host in ("rm.example.org", "192.0.2.7", "localhost", "127.0.0.1", "::1"):
        assert made.holds(host)
    assert not made.holds("other.example.org") and not made.holds("192.0.2.8")
    assert made.expires_at_s == pytest.approx(time.time() + 30 * 86_400, abs=60)


def test_keys_are_readable_for_their_owner_only(tmp_path: Path) -> None:
    init_tls(tmp_path, [])
    modes = {path.name: path.stat().st_mode & 0o777 for path in tmp_path.iterdir()}
    assert modes == {"ca.pem": 0o644, "ca-key.pem": 0o600, "server.pem": 0o644, "server-key.pem": 0o600}


def test_renewal_keeps_the_authority_and_changes_the_certificate(tmp_path: Path) -> None:
    first = init_tls(tmp_path, [], days=1)
    second = init_tls(tmp_path, ["rm.example.org"], days=2)
    assert second.authorities == first.authorities and second.chain != first.chain and second.key != first.key
    assert second.expires_at_s > first.expires_at_s and second.holds("rm.example.org")


def test_authority_cannot_sign_another_authority(tmp_path: Path) -> None:
    from cryptography import x509

    init_tls(tmp_path, [])
    authority = x509.load_pem_x509_certificate((tmp_path / "ca.pem").read_bytes())
    constraints = authority.extensions.get_extension_for_class(x509.BasicConstraints)
    usage = authority.extensions.get_extension_for_class(x509.KeyUsage)
    assert constraints.value.path_length == 0
    assert usage.value.key_cert_sign
    # A client that knows either of them not must refuse the authority.
    assert constraints.critical and usage.critical
    certificate = x509.load_pem_x509_certificate((tmp_path / "server.pem").read_bytes())
    assert not certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca


@pytest.mark.parametrize(
    ("name", "allowed"), [("ca.pem", {"key_cert_sign", "crl_sign"}), ("server.pem", {"digital_signature"})]
)
def test_key_may_be_used_for_its_purpose_alone(tmp_path: Path, name: str, allowed: set[str]) -> None:
    from cryptography import x509

    init_tls(tmp_path, [])
    certificate = x509.load_pem_x509_certificate((tmp_path / name).read_bytes())
    usage = certificate.extensions.get_extension_for_class(x509.KeyUsage).value
    uses = (
        *("digital_signature", "content_commitment", "key_encipherment", "data_encipherment", "key_agreement"),
        *("key_cert_sign", "crl_sign"),
    )
    assert {use for use in uses if getattr(usage, use)} == allowed


def test_renewal_without_the_authoritys_key_is_refused_with_the_remedy(tmp_path: Path) -> None:
    init_tls(tmp_path, [])
    (tmp_path / "ca-key.pem").unlink()
    with pytest.raises(InputError, match=r"put ca-key.pem back"):
        init_tls(tmp_path, [])


def test_key_of_another_authority_is_refused(tmp_path: Path) -> None:
    init_tls(tmp_path / "a", [])
    init_tls(tmp_path / "b", [])
    (tmp_path / "b/ca-key.pem").replace(tmp_path / "a/ca-key.pem")
    with pytest.raises(InputError, match=r"ca-key.pem is not the key of ca.pem"):
        init_tls(tmp_path / "a", [])


@pytest.mark.parametrize("host", ["two words", "", "a" * 300, "rm..org"])
def test_text_that_names_no_host_is_refused(tmp_path: Path, host: str) -> None:
    with pytest.raises(InputError, match="not the name of a host"):
        init_tls(tmp_path, [host])


@pytest.mark.parametrize("days", [0, -1, 4_000, float("nan")])
def test_time_of_validity_is_bounded(tmp_path: Path, days: float) -> None:
    with pytest.raises(InputError, match="at most 3650 days"):
        init_tls(tmp_path, [], days=days)


def test_expired_certificate_is_refused_with_the_remedy(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"has expired.*server.pem.*themis rm init"):
        init_tls(tmp_path, [], days=1e-9)
    with pytest.raises(InputError, match="has expired"):
        load_tls(files(tmp_path))


def test_files_that_do_not_belong_together_are_refused(tmp_path: Path) -> None:
    a, b = tmp_path / "a", tmp_path / "b"
    init_tls(a, [])
    init_tls(b, [])
    with pytest.raises(InputError, match="no trusted authority signed"):
        load_tls(files(a, ca=b / "ca.pem"))
    with pytest.raises(InputError, match="certificate and key cannot be used"):
        load_tls(files(a, key=b / "server-key.pem"))
    with pytest.raises(InputError, match="no certificate in PEM"):
        load_tls(files(a, ca=a / "server-key.pem"))
    with pytest.raises(InputError, match=r"cannot be read.*No such file.*themis rm init"):
        load_tls(files(a, key=tmp_path / "none"))


def test_key_with_a_password_is_refused_without_a_question(tmp_path: Path) -> None:
    from cryptography.hazmat.primitives import serialization

    init_tls(tmp_path, [])
    path = tmp_path / "server-key.pem"
    key = serialization.load_pem_private_key(path.read_bytes(), password=None)
    form = serialization.BestAvailableEncryption(b"secret")
    path.write_bytes(key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, form))
    with pytest.raises(InputError, match="certificate and key cannot be used"):
        load_tls(files(tmp_path))


def test_settings_without_files_mean_no_tls_and_some_of_the_files_are_refused() -> None:
    assert load_tls(TlsSettings()) is None
    with pytest.raises(ValueError, match="go together"):
        TlsSettings(certificate=Path("a"))


def test_app_masters_expect_the_advertised_name_or_one_that_the_certificate_holds(tmp_path: Path) -> None:
    made = init_tls(tmp_path, ["rm.example.org"])
    assert made.trust("rm.example.org:1").name == "rm.example.org"
    assert made.trust("0.0.0.0:1").name == "rm.example.org"


def test_web_server_does_not_speak_old_versions(tmp_path: Path) -> None:
    init_tls(tmp_path, [])
    assert loaded(files(tmp_path)).context.minimum_version is ssl.TLSVersion.TLSv1_2


@pytest.mark.parametrize("name", ["ca-key.pem", "server.pem", "server-key.pem"])
def test_files_without_their_authority_are_not_overwritten(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("kept")
    with pytest.raises(InputError, match=rf"{name} would be overwritten.*put ca.pem back"):
        init_tls(tmp_path, [])
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert (tmp_path / name).read_text() == "kept"


def test_key_that_other_users_may_read_is_in_the_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    init_tls(tmp_path, [])
    assert not caplog.text
    (tmp_path / "server-key.pem").chmod(0o644)
    loaded(files(tmp_path))
    assert f"chmod 600 {tmp_path / 'server-key.pem'}" in caplog.text
