"""TLS as clients of a ResourceManager see it: which certificates they trust, and why a connection fails.

The ResourceManager shows a certificate. A client accepts it if one of its trusted authorities signed it, it has not
expired, and it holds the name that the client expects.
"""

from __future__ import annotations

import base64
import socket
import ssl
from collections.abc import Mapping

import grpc

from themis.errors import InputError, ThemisError
from themis.values import Value

CA_VARIABLE = "THEMIS_CA"
"""Names the file of the authorities that a client trusts."""
CA_FILE = "ca.pem"
"""The same file, in the client's folder for the ResourceManager (`themis.identity.settings_folder`)."""

_AM_AUTHORITIES, _AM_NAME = "THEMIS_RM_CA", "THEMIS_RM_NAME"
_MAX_AUTHORITIES_BYTES = 64 * 1024
"""An environment holds at most 128 KiB in one variable."""

_PROBE_S = 2.0
_EXPIRED, _NOT_YET_VALID, _OTHER_NAME, _OTHER_IP = 10, 9, 62, 64
"""Codes of OpenSSL (`X509_V_ERR_..`)."""


class Trust(Value, frozen=True, kw_only=True):
    """What a client accepts.

    Attributes:
        authorities: Certificates in PEM.
        name: The name that the certificate must hold; empty: the host of the address, of several the first.
    """

    authorities: str
    name: str = ""

    def expected_name(self, addresses: str) -> str:
        """Return the name that the certificate must hold, for HOST:PORT or several with commas between."""
        return self.name or addresses.partition(",")[0].rpartition(":")[0].strip("[]")

    def channel(self, addresses: str) -> tuple[grpc.ChannelCredentials, tuple[tuple[str, str], ...]]:
        """Return credentials and options of a gRPC channel to these addresses."""
        credentials = grpc.ssl_channel_credentials(root_certificates=self.authorities.encode())
        return credentials, (("grpc.ssl_target_name_override", self.expected_name(addresses)),)

    def environment(self) -> dict[str, str]:
        """Return the variables of an app master, see `trust_of`.

        A variable is one line, because launch scripts of engines hold it: DER in base64, with commas between.
        """
        ders = [base64.b64encode(ssl.PEM_cert_to_DER_cert(each)).decode() for each in _certificates(self.authorities)]
        return {_AM_AUTHORITIES: ",".join(ders), _AM_NAME: self.name}


def trust_of(environment: Mapping[str, str]) -> Trust | None:
    """Return what an app master trusts, by its environment; None without TLS.

    Raises:
        InputError: The variable holds no certificates.
    """
    text = environment.get(_AM_AUTHORITIES, "")
    if not text:
        return None
    try:
        pem = "".join(ssl.DER_cert_to_PEM_cert(base64.b64decode(each, validate=True)) for each in text.split(","))
    except ValueError as error:
        raise InputError(f"{_AM_AUTHORITIES} holds no certificates", value=str(error)) from None
    return Trust(authorities=pem, name=environment.get(_AM_NAME, ""))


def checked_authorities(text: str, source: str) -> str:
    """Return the certificates of a text in PEM, without what is between them.

    Raises:
        InputError: It holds none, or too many. `source` names where it is from.
    """
    found = "".join(_certificates(text))
    try:
        if found:
            ssl.create_default_context(cadata=found)
    except (ssl.SSLError, TypeError) as error:
        raise InputError("these are no certificates", value=source, remedy=str(error)) from None
    if not found:
        remedy = "give the file `ca.pem` that `themis rm init` made, or that of your authority"
        raise InputError("no certificate in PEM", value=source, remedy=remedy)
    if len(found) > _MAX_AUTHORITIES_BYTES:
        remedy = "keep the authority that signs the ResourceManager's certificate"
        raise InputError(f"more than {_MAX_AUTHORITIES_BYTES // 1024} KiB of certificates", value=source, remedy=remedy)
    return found


def tls_failure(addresses: str, trust: Trust | None) -> ThemisError | None:
    """Find out, by a connection of its own, why TLS keeps a client from a ResourceManager.

    gRPC reports only that it cannot connect. Returns None if TLS is not the reason.

    Args:
        addresses: HOST:PORT, or several with commas between, of which the first that answers is asked.
        trust: What the client trusts; None for a client without TLS.
    """
    for address in addresses.split(","):
        host, _, port = address.rpartition(":")
        try:
            with socket.create_connection((host.strip("[]"), int(port)), timeout=_PROBE_S) as connection:
                return _failure_on(connection, address, addresses, trust)
        except OSError:
            continue
    return None


def _failure_on(connection: socket.socket, address: str, addresses: str, trust: Trust | None) -> ThemisError | None:
    if trust is None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        name = address.rpartition(":")[0].strip("[]")
    else:
        context, name = client_context(trust.authorities), trust.expected_name(addresses)
    try:
        with context.wrap_socket(connection, server_hostname=name):
            pass
    except ssl.SSLCertVerificationError as error:
        return certificate_error(error, f"{name} at {address}")
    except ssl.SSLError:
        if trust is None:
            return None
        remedy = f"remove --ca, {CA_VARIABLE} and {CA_FILE} if it has no TLS, or ask its administrator"
        return InputError("this ResourceManager does not speak TLS", value=address, remedy=remedy)
    if trust is None:
        remedy = f"get its {CA_FILE} from an administrator, and name it with --ca or {CA_VARIABLE}"
        return InputError("this ResourceManager needs TLS", value=address, remedy=remedy)
    return None


def client_context(authorities: str) -> ssl.SSLContext:
    """Return the settings of a client that trusts these authorities alone."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_verify_locations(cadata=authorities)
    return context


def certificate_error(error: ssl.SSLCertVerificationError, value: str) -> InputError:
    """Return our error for a certificate that is not accepted; `value` says whose it is."""
    if error.verify_code in (_EXPIRED, _NOT_YET_VALID):
        what = "the certificate has expired" if error.verify_code == _EXPIRED else "the certificate is not valid yet"
        return InputError(what, value=value, remedy="renew it with `themis rm init`, and restart the ResourceManager")
    if error.verify_code in (_OTHER_NAME, _OTHER_IP):
        remedy = "use a name that it holds, or add this one: `themis rm init --host NAME`"
        return InputError("the certificate is for other names", value=value, remedy=remedy)
    remedy = f"get the {CA_FILE} of this ResourceManager from its administrator ({error.verify_message})"
    return InputError("no trusted authority signed the certificate", value=value, remedy=remedy)


def _certificates(text: str) -> list[str]:
    """Return the certificates in a text, each as PEM. Raises nothing: what is broken is left out."""
    begin, end = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"
    parts = [part.partition(end) for part in text.split(begin)[1:]]
    return [f"{begin}{body}{end}\n" for body, found, _ in parts if found]
