"""The certificate of a ResourceManager: load it, check it, or make one.

An *authority* (certificate authority, CA) signs the certificate. Clients and app masters have the certificate of the
authority, and trust what it has signed. `init_tls` makes an authority in a folder, unless there is one. So a later
certificate changes nothing for clients. The settings may also name files of another authority.
"""

from __future__ import annotations

import contextlib
import ipaddress
import logging
import os
import re
import socket
import ssl
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import grpc

from themis.config.rm_settings import TlsSettings
from themis.errors import InputError, MissingHereError
from themis.tls import Trust, certificate_error, checked_authorities, client_context
from themis.values import Value

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
    from cryptography.x509 import Certificate

LOG = logging.getLogger("themis.rm.tls")

AUTHORITY, AUTHORITY_KEY = "ca.pem", "ca-key.pem"
CERTIFICATE, KEY = "server.pem", "server-key.pem"

AUTHORITY_DAYS = 3_650
CERTIFICATE_DAYS = 397.0
"""The default: about 13 months, after which browsers do not accept a certificate."""
_HOST = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_.-]{0,251}[A-Za-z0-9_])?")
_BEFORE = timedelta(minutes=5)
"""Clocks of clients may run behind."""
_SOON = timedelta(days=30)
"""A start warns of a certificate that expires within this time."""


class ServerTls(Value, frozen=True, kw_only=True):
    """The checked certificate of a ResourceManager.

    Attributes:
        chain: The certificate, and those between it and the authority, in PEM.
        names: The names and addresses that it holds.
        context: For the web server of the pages.
    """

    chain: bytes
    key: bytes
    authorities: str
    names: tuple[str, ...]
    expires_at_s: float
    context: ssl.SSLContext

    def credentials(self) -> grpc.ServerCredentials:
        """Return the credentials of the gRPC server."""
        return grpc.ssl_server_credentials([(self.key, self.chain)])

    def holds(self, host: str) -> bool:
        """Whether the certificate is for this name or address."""
        try:
            _handshake(self.context, self.authorities, host)
        except ssl.SSLError:
            return False
        return True

    def trust(self, address: str) -> Trust:
        """Return what app masters trust.

        They expect the host of the address that they connect to. If the certificate does not hold it, for example
        because it is 0.0.0.0, they expect a name that it does hold.

        Raises:
            InputError: The certificate holds no other name that could be expected.
        """
        host = address.rpartition(":")[0].strip("[]")
        plain = [name for name in self.names if "*" not in name]
        if not self.holds(host) and not plain:
            remedy = "set `advertise` to a name that it holds"
            raise InputError("the certificate is for other names", value=host, remedy=remedy)
        return Trust(authorities=self.authorities, name=host if self.holds(host) else plain[0])

    def report(self, address: str) -> None:
        """Log how long the certificate is valid, and what will keep clients of this address from connecting."""
        end = datetime.fromtimestamp(self.expires_at_s, UTC)
        LOG.info("TLS, with a certificate for %s until %s", ", ".join(self.names), end.isoformat(" ", "minutes"))
        if (left := end - datetime.now(UTC)) < _SOON:
            LOG.warning("the certificate expires in %d days: renew it with `themis rm init`", left.days)
        host = address.rpartition(":")[0].strip("[]")
        if host not in ("0.0.0.0", "::") and not self.holds(host):
            LOG.warning("the certificate does not hold %s: clients that use this name do not accept it", host)


def load_tls(settings: TlsSettings) -> ServerTls | None:
    """Load the certificate that the settings name, and check it as a client does. Returns None if they name none.

    Raises:
        InputError: A file cannot be read, they do not belong together, or the certificate has expired.
    """
    if settings.certificate is None or settings.key is None or settings.ca is None:
        return None
    files = {path: _read(path) for path in (settings.certificate, settings.key, settings.ca)}
    if settings.key.stat().st_mode & 0o007:
        LOG.warning("other users may read the key: chmod 600 %s", settings.key)
    authorities = checked_authorities(files[settings.ca].decode("ascii", "replace"), str(settings.ca))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        # Without the argument, OpenSSL asks the terminal for the password of an encrypted key.
        context.load_cert_chain(settings.certificate, settings.key, password="")
        found = _handshake(context, authorities, None)
    except ssl.SSLCertVerificationError as error:
        raise certificate_error(error, str(settings.certificate)) from None
    except (ssl.SSLError, ValueError) as error:
        value = f"{settings.certificate}, {settings.key}"
        raise InputError("tls: certificate and key cannot be used", value=value, remedy=str(error)) from None
    return ServerTls(
        chain=files[settings.certificate],
        key=files[settings.key],
        authorities=authorities,
        names=tuple(str(name) for kind, name in found.get("subjectAltName", ()) if kind in ("DNS", "IP Address")),
        expires_at_s=ssl.cert_time_to_seconds(found["notAfter"]),
        context=context,
    )


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        remedy = f"{error.strerror}; `themis rm init` makes certificates"
        raise InputError("tls: a file cannot be read", value=str(path), remedy=remedy) from None


def _handshake(server_context: ssl.SSLContext, authorities: str, name: str | None) -> dict[str, Any]:
    """Connect a client to a server in memory. Returns the certificate as the client reads it.

    Args:
        server_context: With the certificate.
        authorities: What the client trusts, in PEM.
        name: The name that the client expects; None for any.

    Raises:
        ssl.SSLError: The client does not accept the certificate.
    """
    context = client_context(authorities)
    context.check_hostname = name is not None
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = context.wrap_bio(to_client, to_server, server_hostname=name)
    server = server_context.wrap_bio(to_server, to_client, server_side=True)
    while True:
        try:
            client.do_handshake()
            return client.getpeercert() or {}
        except ssl.SSLWantReadError:
            pass
        with contextlib.suppress(ssl.SSLWantReadError):
            server.do_handshake()


# ---- making certificates ----


def init_tls(folder: Path, hosts: Sequence[str], *, days: float = CERTIFICATE_DAYS) -> ServerTls:
    """Make an authority in a folder unless it has one, and a new certificate for these names and addresses.

    Clients trust the authority, so a new certificate changes nothing for them. Keys are readable for their owner only.

    Args:
        folder: Is created if it does not exist. Gets `ca.pem`, `ca-key.pem`, `server.pem` and `server-key.pem`.
        hosts: Names and IP addresses by which clients reach the ResourceManager, as well as those of this machine.
        days: How long the certificate is valid.

    Raises:
        MissingHereError: The package `cryptography` is not installed.
        InputError: A file cannot be read or written, a name is none, or the folder has only some of the files.
    """
    try:
        import cryptography  # noqa: F401
    except ImportError:
        remedy = "pip install 'themis-scheduler[tls]', or name files of your own under `tls` in the settings"
        raise MissingHereError("certificates need the package cryptography", remedy=remedy) from None
    if not 0 < days <= AUTHORITY_DAYS:
        raise InputError(f"a certificate is valid for more than 0 and at most {AUTHORITY_DAYS} days", value=days)
    names = list(dict.fromkeys([*hosts, socket.gethostname(), socket.getfqdn(), "localhost", "127.0.0.1", "::1"]))
    general_names = [_general_name(name) for name in names]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if (folder / AUTHORITY).exists():
            authority, authority_key = _authority_of(folder)
        else:
            _check_unused(folder)
            authority, authority_key = _new_authority(folder)
        _new_certificate(folder, authority, authority_key, general_names, days)
    except OSError as error:
        raise InputError("certificates cannot be written", value=str(folder), remedy=str(error)) from None
    made = load_tls(TlsSettings(certificate=folder / CERTIFICATE, key=folder / KEY, ca=folder / AUTHORITY))
    assert made is not None
    return made


def _authority_of(folder: Path) -> tuple[Certificate, EllipticCurvePrivateKey]:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    try:
        authority = x509.load_pem_x509_certificate((folder / AUTHORITY).read_bytes())
        key = load_pem_private_key((folder / AUTHORITY_KEY).read_bytes(), password=None)
    except (FileNotFoundError, ValueError, TypeError) as error:
        remedy = f"put {AUTHORITY_KEY} back, or make another authority with --dir ({error})"
        raise InputError("the authority's key cannot be used", value=str(folder), remedy=remedy) from None
    if not isinstance(key, EllipticCurvePrivateKey) or key.public_key() != authority.public_key():
        raise InputError(f"{AUTHORITY_KEY} is not the key of {AUTHORITY}", value=str(folder))
    return authority, key


def _check_unused(folder: Path) -> None:
    """Raise InputError if a folder without an authority has files that a new one would overwrite."""
    if found := [name for name in (AUTHORITY_KEY, CERTIFICATE, KEY) if (folder / name).exists()]:
        remedy = f"put {AUTHORITY} back, remove them, or name another folder with --dir"
        raise InputError(f"{', '.join(found)} would be overwritten", value=str(folder), remedy=remedy)


def _new_authority(folder: Path) -> tuple[Certificate, EllipticCurvePrivateKey]:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    subject = _named(f"Themis authority of {socket.gethostname()}")
    authority = (
        _builder(subject, subject, key, days=AUTHORITY_DAYS)
        # It signs certificates of servers, not of further authorities.
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .sign(key, hashes.SHA256())
    )
    _write_key(folder / AUTHORITY_KEY, key)
    _write(folder / AUTHORITY, _pem(authority), 0o644)
    return authority, key


def _new_certificate(
    folder: Path, authority: Certificate, authority_key: EllipticCurvePrivateKey, names: Sequence[Any], days: float
) -> None:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    issuer_id = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key())
    certificate = (
        _builder(_named(str(names[0].value)), authority.subject, key, days=days)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([x509.oid.ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(issuer_id, critical=False)
        .sign(authority_key, hashes.SHA256())
    )
    _write_key(folder / KEY, key)
    _write(folder / CERTIFICATE, _pem(certificate), 0o644)


def _builder(subject: Any, issuer: Any, key: EllipticCurvePrivateKey, *, days: float) -> Any:
    from cryptography import x509

    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _BEFORE)
        .not_valid_after(now + timedelta(days=days))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _named(name: str) -> Any:
    from cryptography import x509

    # The field takes 64 characters. Clients read the names in `subjectAltName`.
    return x509.Name([x509.NameAttribute(x509.oid.NameOID.COMMON_NAME, name[:64])])


def _general_name(name: str) -> Any:
    from cryptography import x509

    with contextlib.suppress(ValueError):
        return x509.IPAddress(ipaddress.ip_address(name))
    with contextlib.suppress(UnicodeError):
        if _HOST.fullmatch(encoded := name.encode("idna").decode()):
            return x509.DNSName(encoded)
    raise InputError("not the name of a host", value=name, remedy="write rm.example.org, or 10.0.0.5")


def _usage(*, signs_certificates: bool) -> Any:
    from cryptography import x509

    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _pem(certificate: Certificate) -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding

    return certificate.public_bytes(Encoding.PEM)


def _write_key(path: Path, key: EllipticCurvePrivateKey) -> None:
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    _write(path, key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()), 0o600)


def _write(path: Path, content: bytes, mode: int) -> None:
    """Write a file whose mode is right from the beginning, in place of an earlier one."""
    new = path.with_name(path.name + ".new")
    new.unlink(missing_ok=True)
    with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
        file.write(content)
    new.chmod(mode)
    new.replace(path)
