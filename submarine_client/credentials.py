"""How a client proves who it is, and knows whom it talks to: its token, and the authorities that it trusts."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

import grpc

from themis.errors import InputError
from themis.identity import (
    HEADER,
    INSECURE_VARIABLE,
    TOKEN_FILE,
    TOKEN_VARIABLE,
    bearer,
    is_local_token_of,
    local_socket,
    settings_folder,
)
from themis.tls import CA_FILE, CA_VARIABLE, Trust, checked_authorities
from themis.web.local_peer import is_loopback_name

T = TypeVar("T")
Metadata = tuple[tuple[str, str], ...]

_ANSWER_S = 30.0
"""Seconds that the local socket may take to answer. The loop of an overloaded ResourceManager is slow."""
_ANSWER_BYTES = 128 * 1024


class Credentials:
    """Finds the token for one ResourceManager, in the first of these places that has one.

    1. THEMIS_TOKEN of the environment;
    2. for an address of this machine, a token that the ResourceManager itself gives to the user of this process;
    3. the file `token` in the client's folder for this address, such as ~/.config/themis/rm.example.org_8650.

    A local token expires after some minutes and at a restart of the ResourceManager; then `call` gets another one.

    The authorities that it trusts are in the file `ca`, else in the file that THEMIS_CA names, else in `ca.pem` of the
    same folder. For an address of this machine, the ResourceManager itself gives them. Without any, there is no TLS.

    Args:
        address: HOST:PORT of the ResourceManager, or several with commas between.
        environment: The environment.
        ca: The file of the authorities.
    """

    def __init__(self, address: str, environment: Mapping[str, str] = os.environ, *, ca: str | None = None) -> None:
        self._address = address
        self._environment = environment
        self._ca = ca
        self._token = ""
        self._trust: Trust | None = None
        self._trust_is_known = False

    @property
    def trust(self) -> Trust | None:
        """What the client trusts; None without TLS. Is looked for once.

        Raises:
            InputError: A file cannot be used.
        """
        if not self._trust_is_known:
            text = self._authorities()
            self._trust = Trust(authorities=text) if text else None
            self._trust_is_known = True
        return self._trust

    def call(self, make: Callable[[Metadata], T]) -> T:
        """Make a call with the metadata that carries the token; a second time with a new token if it is refused.

        Raises:
            InputError: The token file is readable for other users, or the token cannot be sent.
        """
        had_token = bool(self._token)
        try:
            return make(self._metadata())
        except grpc.RpcError as error:
            is_refused = isinstance(error, grpc.Call) and error.code() is grpc.StatusCode.UNAUTHENTICATED
            if not (is_refused and had_token):
                raise
        self._token = ""
        return make(self._metadata())

    def _metadata(self) -> Metadata:
        if not self._token:
            given = _checked(self._environment.get(TOKEN_VARIABLE, "").strip(), TOKEN_VARIABLE)
            self._token = (
                self._encrypted(given, is_loopback_name)
                # Of several addresses, the call may go to another machine than the one that gave the token.
                or self._encrypted(_local_answer(self._address)[0], _is_of_this_machine)
                or self._encrypted(_kept_token(self._address), is_loopback_name)
            )
        return ((HEADER, bearer(self._token)),) if self._token else ()

    def _encrypted(self, token: str, is_here: Callable[[str], bool]) -> str:
        """Return a token unless it would travel over a network in the clear. Raises InputError then.

        `is_here` says whether what is sent to a host stays on this machine.
        """
        if not token or self.trust is not None or self._environment.get(INSECURE_VARIABLE) == "1":
            return token
        hosts = [address.rpartition(":")[0].strip("[]") for address in self._address.split(",")]
        if not all(map(is_here, hosts)):
            folder = settings_folder(self._address.partition(",")[0])
            remedy = f"put its {CA_FILE} into {folder}, or set {INSECURE_VARIABLE}=1 in a network that you trust"
            raise InputError("the token would travel without encryption", value=self._address, remedy=remedy)
        return token

    def _authorities(self) -> str:
        if named := self._ca or self._environment.get(CA_VARIABLE, ""):
            return _read_authorities(Path(named))
        for path in _kept_files(self._address, CA_FILE):
            # The home of another user, as after `su` without a login, may be closed.
            with contextlib.suppress(PermissionError):
                if path.exists():
                    return _read_authorities(path)
        answer = _local_answer(self._address)[1]
        return checked_authorities(answer, "the ResourceManager of this machine") if answer else ""


def _read_authorities(path: Path) -> str:
    try:
        return checked_authorities(path.read_text(encoding="ascii", errors="replace"), str(path))
    except OSError as error:
        raise InputError("the authorities cannot be read", value=str(path), remedy=str(error.strerror)) from None


def _checked(token: str, source: str) -> str:
    """Return a token that a header can carry. Raises InputError, without the token, for any other text."""
    if token and not (token.isascii() and token.isprintable() and " " not in token):
        raise InputError(f"{source} holds no token", remedy="write the one line that `themis user add` printed")
    return token


def _local_answer(addresses: str) -> tuple[str, str]:
    """Return the token and the authorities of the ResourceManager that serves one of the addresses on this machine.

    Both are empty without one, and the authorities also if it has no TLS.
    """
    for address in addresses.split(","):
        host, _, port = address.rpartition(":")
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(_ANSWER_S)
            connection.connect(local_socket(int(port)))
            # A ResourceManager of this machine may have the same port as the one of another machine that is meant.
            if _is_of_this_machine(host.strip("[]")):
                token, _, authorities = _read(connection).partition("\n")
                if is_local_token_of(token, os.geteuid()):
                    return token, authorities
    return "", ""


def _read(connection: socket.socket) -> str:
    content = b""
    while len(content) < _ANSWER_BYTES and (part := connection.recv(_ANSWER_BYTES)):
        content += part
    return content.decode("ascii", "replace").strip()


def _is_of_this_machine(host: str) -> bool:
    """Whether a name or address is of this machine: only then can a socket be bound to it."""
    with contextlib.suppress(OSError):
        for family, kind, protocol, _name, place in socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM):
            with contextlib.suppress(OSError), socket.socket(family, kind, protocol) as probe:
                probe.bind(place)
                return True
    return False


def _kept_files(addresses: str, name: str) -> list[Path]:
    """Return where the file of this name may be, for each address."""
    try:
        return [Path(settings_folder(address)).expanduser() / name for address in addresses.split(",")]
    except RuntimeError:
        # A user without a name, as in some containers, has no home.
        return []


def _kept_token(addresses: str) -> str:
    for path in _kept_files(addresses, TOKEN_FILE):
        try:
            if path.stat().st_mode & 0o077:
                raise InputError("other users may read the token", value=str(path), remedy=f"chmod 600 {path}")
            return _checked(path.read_text(encoding="utf-8").strip(), str(path))
        except (FileNotFoundError, NotADirectoryError):
            continue
        except (OSError, UnicodeDecodeError) as error:
            raise InputError("the token cannot be read", value=str(path), remedy=str(error)) from None
    return ""
