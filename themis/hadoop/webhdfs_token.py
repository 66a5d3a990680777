"""HDFS delegation tokens: out of Hadoop's token file, into the form that WebHDFS takes.

The file (HADOOP_TOKEN_FILE_LOCATION, which YARN sets in every container) holds a `Credentials` object in its first,
"Writable" format: the magic `HDTS`, a version byte 0, then a count of tokens, each an alias and a token. A token is an
identifier, a password, a kind and a service, each a length and that many bytes; counts and lengths are Hadoop's
variable-length integers (`org.apache.hadoop.io.WritableUtils.readVLong`). WebHDFS takes the same token without its
alias, in URL-safe base64 without padding (`Token.encodeToUrlString`).
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path

from themis.hadoop.errors import LoginError
from themis.values import Value, repr_without

_MAGIC = b"HDTS\0"
_KIND = b"HDFS_DELEGATION_TOKEN"


APP_TOKEN = "themis.app.token"
"""The alias of the secret by which an app master proves its attempt to the ResourceManager of Themis."""


class IssuedToken(Value, frozen=True, kw_only=True):
    """A token in the form that WebHDFS takes, and how long it is good for."""

    text: str
    life_s: float

    __repr__ = repr_without("text")


def delegation_token(path: Path, service: str) -> str | None:
    """Return the token for an HDFS, in WebHDFS's form, or None if the file has none.

    Args:
        path: A token file.
        service: The authority in the HDFS URI. Its own token goes first; a single token of another name is taken
            too, since a token may be filed under an address where the URI has a name.

    Raises:
        LoginError: The file cannot be read.
    """
    try:
        content = path.read_bytes()
        if not content.startswith(_MAGIC):
            raise ValueError("not in the Writable format, which begins with HDTS and 0")
        found = {kept_for: token for kind, kept_for, token in _tokens(content[len(_MAGIC) :]) if kind == _KIND}
    except (OSError, ValueError, IndexError) as error:
        raise LoginError("cannot read the token file", value=str(path), remedy=str(error)) from error
    for name in (f"ha-hdfs:{service}", service):
        if name.encode() in found:
            return found[name.encode()]
    return next(iter(found.values())) if len(found) == 1 else None


def secret(path: Path, alias: str) -> bytes | None:
    """Return a secret key of a token file, or None if it has none of this alias. Raises LoginError."""
    try:
        content = path.read_bytes()
        if not content.startswith(_MAGIC):
            raise ValueError("not in the Writable format, which begins with HDTS and 0")
        data = content[len(_MAGIC) :]
        at = _after_tokens(data)
        count, at = _number(data, at)
        for _ in range(count):
            name, at = _field(data, at)
            value, at = _field(data, at)
            if name == alias.encode():
                return value
    except (OSError, ValueError, IndexError) as error:
        raise LoginError("cannot read the token file", value=str(path), remedy=str(error)) from error
    return None


def _after_tokens(data: bytes) -> int:
    """Where the secret keys begin: after the tokens, each an alias and four fields."""
    count, at = _number(data, 0)
    for _ in range(5 * count):
        _, at = _field(data, at)
    return at


def _tokens(data: bytes) -> Iterator[tuple[bytes, bytes, str]]:
    """Kind, service and encoded form of each token."""
    count, at = _number(data, 0)
    for _ in range(count):
        _, at = _field(data, at)
        begun = at
        fields = []
        for _ in range(4):
            value, at = _field(data, at)
            fields.append(value)
        encoded = base64.urlsafe_b64encode(data[begun:at]).rstrip(b"=").decode()
        yield fields[2], fields[3], encoded


def _field(data: bytes, at: int) -> tuple[bytes, int]:
    length, at = _number(data, at)
    if length < 0 or at + length > len(data):
        raise ValueError("it ends within a token")
    return data[at : at + length], at + length


def _number(data: bytes, at: int) -> tuple[int, int]:
    """A variable-length integer at `at`, and where the next thing begins."""
    first = data[at] - 256 if data[at] > 127 else data[at]
    if first >= -112:
        return first, at + 1
    negative = first < -120
    end = at + 1 + (-120 - first if negative else -112 - first)
    value = int.from_bytes(data[at + 1 : end], "big")
    return (~value if negative else value), end
