"""Files on HDFS over WebHDFS: whole-file writes, reads that go on where they broke off, atomic renames.

The protocol's two steps (NameNode, then a DataNode that it names) and the search for the active NameNode are HdfsCLI's
(package `hdfs`); what is added here are typed errors, patience while daemons are unavailable, and the operations that
HdfsCLI lacks. Every operation may be repeated after a lost reply without harm. A DataNode's host name, as the NameNode
gives it, must resolve from here.
"""

from __future__ import annotations

import os
import posixpath
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import requests
from hdfs.client import Client, InsecureClient, TokenClient, _Request

from themis.hadoop.configuration import HadoopConfiguration
from themis.hadoop.login_tokens import LoginTokens, login_tokens
from themis.hadoop.webhdfs_address import HdfsPlace, configuration_of, resolve, user_name
from themis.hadoop.webhdfs_errors import BusyGatewayError, HdfsMissingError, ShortReadError
from themis.hadoop.webhdfs_retry import Patience, RetryRule
from themis.hadoop.webhdfs_token import delegation_token
from themis.values import Value

PIECE_BYTES = 1 << 20
CONNECT_TIMEOUT_S = 5.0
READ_TIMEOUT_S = 60.0

_GATEWAY_CODES = (502, 503, 504)

T = TypeVar("T")


class HdfsStatus(Value, frozen=True, kw_only=True):
    """A file or folder. `file_id` is new whenever the file is, `modified_ms` is the NameNode's own time."""

    name: str
    folder: bool
    size_bytes: int
    modified_ms: int
    file_id: int


class WebHdfs:
    """One HDFS, as one user.

    Args:
        client: The HdfsCLI client to speak through.
        rule: How long each operation is tried again while daemons are unavailable.
    """

    def __init__(self, client: Any, rule: RetryRule | None = None) -> None:
        self._client = client
        self._rule = rule or RetryRule()

    def with_rule(self, rule: RetryRule) -> WebHdfs:
        """The same connection with other patience."""
        return WebHdfs(self._client, rule)

    def status(self, path: str) -> HdfsStatus | None:
        """Return the status of a file or folder, or None if it does not exist."""
        try:
            found = self._patiently("cannot look at a file on HDFS", path, lambda: self._client.status(path))
        except HdfsMissingError:
            return None
        return _status(posixpath.basename(path), found)

    def list(self, path: str) -> tuple[HdfsStatus, ...]:
        """What a folder holds; raises HdfsMissingError where there is none."""
        found = self._patiently("cannot list a folder on HDFS", path, lambda: self._client.list(path, status=True))
        return tuple(_status(name, status) for name, status in found)

    def make_folders(self, path: str) -> None:
        """Make a folder and those above it, where they are not there."""
        self._patiently("cannot make a folder on HDFS", path, lambda: self._client.makedirs(path))

    def create(self, path: str, content: Callable[[], Iterator[bytes] | bytes], *, is_private: bool = False) -> None:
        """Write a whole file in place of any that is there.

        Args:
            path: Where; folders above it are made.
            content: The content from its beginning, opened again for each attempt.
            is_private: Whether only its owner can read a file that was not there.
        """
        permission = "600" if is_private else None
        self._patiently(
            "cannot write a file on HDFS",
            path,
            lambda: self._client.write(path, data=content(), overwrite=True, permission=permission),
        )

    def make_private_folder(self, path: str) -> None:
        """Make a folder that only its owner can read, where it is not there. Folders above it are for all."""
        self.make_folders(posixpath.dirname(path))
        self._patiently("cannot make a folder on HDFS", path, lambda: self._client.makedirs(path, "700"))

    def read(self, path: str, size_bytes: int) -> Iterator[bytes]:
        """The first `size_bytes` of a file in pieces; after a broken connection it goes on where it stopped."""
        patience = Patience(self._rule)
        done = 0
        while done < size_bytes:
            try:
                with self._client.read(path, offset=done, length=size_bytes - done, chunk_size=PIECE_BYTES) as pieces:
                    for piece in pieces:
                        done += len(piece)
                        patience.progressed()
                        yield piece
                if done < size_bytes:
                    raise ShortReadError(f"{done} of {size_bytes} bytes")
            except Exception as error:
                patience.failed(error, "cannot read a file on HDFS", path)

    def read_whole(self, path: str) -> bytes:
        """The content of a small file."""
        status = self.status(path)
        if status is None:
            raise HdfsMissingError("no such file on HDFS", value=path)
        return b"".join(self.read(path, status.size_bytes))

    def rename(self, source: str, target: str, *, overwrite: bool = False) -> None:
        """Rename in one step; with `overwrite` a file (or an empty folder) that is there is replaced in that step.

        Raises:
            HdfsExistsError: The target is there and may not be overwritten.
            HdfsMissingError: The source is not there.
        """
        options = "OVERWRITE" if overwrite else "NONE"
        attempts = 0

        def attempt() -> None:
            nonlocal attempts
            attempts += 1
            # Without options the NameNode would move the source *into* a folder of the target's name.
            self._client._rename(source, destination=target, renameoptions=options)

        try:
            self._patiently("cannot rename on HDFS", source, attempt)
        except HdfsMissingError:
            # The reply to an earlier attempt may have been lost after the deed.
            if attempts == 1 or self.status(target) is None:
                raise

    def concat(self, target: str, sources: Sequence[str], size_bytes: int) -> None:
        """Join files of one folder to the end of `target` in one step; they are gone afterwards.

        Args:
            target: A file that is not empty.
            sources: Others in its folder, in order.
            size_bytes: The target's size afterwards, by which an earlier success whose reply was lost is known.
        """
        joined = ",".join(sources)
        try:
            self._patiently("cannot join files on HDFS", target, lambda: self._client._concat(target, sources=joined))
        except HdfsMissingError:
            status = self.status(target)
            if status is None or status.size_bytes != size_bytes:
                raise

    def touch(self, path: str, modified_ms: int) -> None:
        """Set the time of a file, in milliseconds since the epoch. Raises HdfsMissingError if there is no file."""
        self._patiently(
            "cannot set the time of a file on HDFS",
            path,
            lambda: self._client._set_times(path, modificationtime=modified_ms, accesstime=-1),
        )

    def delete(self, path: str) -> bool:
        """Delete a file, or a folder with its content. Returns False if it does not exist."""
        return bool(self._patiently("cannot delete on HDFS", path, lambda: self._client.delete(path, recursive=True)))

    def _patiently(self, what: str, path: str, attempt: Callable[[], T]) -> T:
        patience = Patience(self._rule)
        while True:
            try:
                return attempt()
            except Exception as error:
                patience.failed(error, what, path)


def open_webhdfs(
    uri: str, *, rule: RetryRule | None = None, environment: Mapping[str, str] = os.environ
) -> tuple[WebHdfs, str]:
    """A client for the HDFS that `uri` names, and the path in it; nothing is connected yet.

    Args:
        uri: `hdfs://` or `webhdfs://`.
        rule: Retry policy.
        environment: HADOOP_CONF_DIR, HADOOP_USER_NAME and HADOOP_TOKEN_FILE_LOCATION count.

    Raises:
        InputError: A URI that does not resolve.
        LoginError: A token file that cannot be read, or Kerberos without what a login needs.
    """
    configuration = configuration_of(environment)
    place = resolve(uri, configuration)
    return WebHdfs(_client(place, configuration, environment), rule), place.path


def _client(place: HdfsPlace, configuration: HadoopConfiguration, environment: Mapping[str, str]) -> Any:
    shared = {"url": ";".join(place.urls), "timeout": (CONNECT_TIMEOUT_S, READ_TIMEOUT_S)}
    token_file = environment.get("HADOOP_TOKEN_FILE_LOCATION")
    token = delegation_token(Path(token_file), place.service) if token_file else None
    if token is not None:
        return _ByToken(token=token, session=_Session(), **shared)
    if configuration.get("hadoop.security.authentication").lower() == "kerberos":
        return _ByLogin(session=_LoginSession(login_tokens(place.file_system, environment)), **shared)
    return _ByName(user=user_name(environment), session=_Session(), **shared)


class _Session(requests.Session):
    """Takes an overloaded or starting gateway for one that is unavailable."""

    def __init__(self) -> None:
        super().__init__()
        # A web proxy in the environment is meant for the world outside, never for a cluster's own NameNode.
        self.trust_env = False

    def request(self, *arguments: Any, **named: Any) -> requests.Response:
        response = super().request(*arguments, **named)
        if response.status_code in _GATEWAY_CODES:
            response.close()
            raise BusyGatewayError(f"HTTP {response.status_code}", response=response)
        return response


class _LoginSession(_Session):
    """Has the delegation token of our login in every request."""

    def __init__(self, tokens: LoginTokens) -> None:
        super().__init__()
        self._tokens = tokens

    def request(self, *arguments: Any, **named: Any) -> requests.Response:
        # Another dictionary each time: requests of other threads may be reading the former one.
        self.params = {"delegation": self._tokens.current()}
        return super().request(*arguments, **named)


class _ByName(InsecureClient):  # type: ignore[misc]
    """Access without security: the server trusts the user name."""

    _concat = _Request("POST")


class _ByToken(TokenClient):  # type: ignore[misc]
    """With a delegation token."""

    _concat = _Request("POST")


class _ByLogin(Client):  # type: ignore[misc]
    """With the tokens of a login, which are its session's."""

    _concat = _Request("POST")


def _status(name: str, found: Mapping[str, Any]) -> HdfsStatus:
    return HdfsStatus(
        name=name,
        folder=found["type"] == "DIRECTORY",
        size_bytes=int(found["length"]),
        modified_ms=int(found["modificationTime"]),
        file_id=int(found["fileId"]),
    )
