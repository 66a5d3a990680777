"""Read the token of the attempt, which the engine hands over where no task and no other process can read it."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

from themis.errors import InputError

_MAX_CHARS = 1_000


def read_token(environment: Mapping[str, str]) -> str:
    """Return the token, once: what it was read from is empty or gone after it.

    | engine | from |
    |---|---|
    | local | standard input, a pipe |
    | Docker | the file THEMIS_TOKEN_FILE, which is removed |
    | YARN | the credentials of the container |

    Raises:
        InputError: There is no token.
    """
    try:
        if environment.get("THEMIS_ENGINE") == "yarn":
            # Import on demand: Hadoop's formats belong to the YARN engine.
            from am.runtimes.yarn_token import token_of_container

            return token_of_container(environment)
        if name := environment.get("THEMIS_TOKEN_FILE"):
            path = Path(name)
            token = path.read_text(encoding="utf-8")[:_MAX_CHARS]
            path.unlink()
        else:
            token = "" if sys.stdin.isatty() else sys.stdin.read(_MAX_CHARS)
    except (OSError, ValueError) as error:
        raise InputError("the token of this attempt cannot be read", value=str(error)) from error
    if not token:
        raise InputError("an app master needs the token of its attempt", remedy="use: submarine app submit")
    return token
