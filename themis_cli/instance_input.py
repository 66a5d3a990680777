"""Instances that `themis auction`, `allox` and `oef` read from a file, an example or standard input; names as text."""

from __future__ import annotations

import sys

from themis.config.examples import ExampleKind, file_or_example
from themis.errors import InputError, UnknownNameError

_STDIN = "-"


def read_content(name: str, kind: ExampleKind) -> tuple[bytes, str]:
    """Return the content of a file or example, or of standard input for `-`, and its name for errors.

    Raises:
        InputError: It cannot be read.
    """
    if name == _STDIN:
        return sys.stdin.buffer.read(), "standard input"
    try:
        return file_or_example(name, kind).read_bytes(), name
    except UnknownNameError:
        raise
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise InputError(f"cannot read {name}", value=reason, remedy="check the path") from None


def printable(name: str) -> str:
    """The name with control characters of the terminal escaped."""
    return "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in name)
