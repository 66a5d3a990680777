"""The ids and names of apps, to complete a word of the command line."""

from __future__ import annotations

import os
from argparse import Namespace
from typing import Any

from submarine_client.address import rm_address
from submarine_client.connection import Connection
from themis.errors import ThemisError

_TIMEOUT_S = 2.0
_MAX_APPS = 200


def app_references(*, prefix: str, parsed_args: Namespace, **_: Any) -> list[str]:
    """Return the ids and names that begin with `prefix`, of apps that have not ended or are new.

    Returns nothing if no ResourceManager answers: an error would be written over the command line.
    """
    try:
        address = rm_address(getattr(parsed_args, "rm", None), os.environ)
        with Connection(address, timeout_s=_TIMEOUT_S, ca=getattr(parsed_args, "ca", None)) as client:
            apps = client.first(most=_MAX_APPS).apps
    except ThemisError:
        return []
    return sorted({word for app in apps for word in (app.app_id, app.name) if word.startswith(prefix)})
