"""The token that a client's calls carry: from the environment, the ResourceManager of this machine, or a file."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

import grpc

from themis.errors import InputError
from themis.identity import HEADER, TOKEN_FILE, TOKEN_VARIABLE, bearer, is_local_token_of, local_socket

T = TypeVar("T")
Metadata = tuple[tuple[str, str], ...]

_ANSWER_S = 30.0
"""Seconds that the local socket may take to answer. The loop of an overloaded ResourceManager is slow."""
_TOKEN_BYTES = 4_096


class Credentials:
    """Finds the token for one ResourceManager, in the first of these places that has one.

    1. THEMIS_TOKEN of the environment;
    2. for an address of this machine, a token that the ResourceManager itself gives to the user of this process;
    3. the file ~/.config/themis/token.

    A local token expires after some minutes and at a restart of the ResourceManager; then `call` gets another one.

    Args:
        address: HOST:PORT of the ResourceManager, or several with commas between.
        environment: The environment.
    """

    def __init__(self, address: str, environment: Mapping[str, str] = os.environ) -> None:
        self._address = address
        self._environment = environment
        self._token = ""

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
            given = self._environment.get(TOKEN_VARIABLE, "").strip()
            self._token = _checked(given, TOKEN_VARIABLE) or _local_token(self._address) or _kept_token()
        return ((HEADER, bearer(self._token)),) if self._token else ()


def _checked(token: str, source: str) -> str:
    """Return a token that a header can carry. Raises InputError, without the token, for any other text."""
    if token and not (token.isascii() and token.isprintable() and " " not in token):
        raise InputError(f"{source} holds no token", remedy="write the one line that `themis user add` printed")
    return token


def _local_token(addresses: str) -> str:
    """Return a token of the ResourceManager that serves one of the addresses on this machine, or an empty text."""
    for address in addresses.split(","):
        host, _, port = address.rpartition(":")
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(_ANSWER_S)
            connection.connect(local_socket(int(port)))
            # A ResourceManager of this machine may have the same port as the one of another machine that is meant.
            if _is_of_this_machine(host.strip("[]")) and is_local_token_of(token := _read(connection), os.geteuid()):
                return token
    return ""


def _read(connection: socket.socket) -> str:
    content = b""
    while len(content) < _TOKEN_BYTES and (part := connection.recv(_TOKEN_BYTES)):
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


def _kept_token() -> str:
    try:
        path = Path(TOKEN_FILE).expanduser()
    except RuntimeError:
        # A user without a name, as in some containers, has no home.
        return ""
    try:
        if path.stat().st_mode & 0o077:
            raise InputError("other users may read the token", value=str(path), remedy=f"chmod 600 {TOKEN_FILE}")
        return _checked(path.read_text(encoding="utf-8").strip(), TOKEN_FILE)
    except (FileNotFoundError, NotADirectoryError):
        return ""
    except (OSError, UnicodeDecodeError) as error:
        raise InputError("the token cannot be read", value=str(path), remedy=str(error)) from None
