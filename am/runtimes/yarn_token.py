"""The token of the attempt in the credentials of an app master's container."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from themis.errors import InputError
from themis.hadoop.webhdfs_token import APP_TOKEN, secret


def token_of_container(environment: Mapping[str, str]) -> str:
    """Return the token that the ResourceManager put into the container's credentials.

    Raises:
        InputError: There are no credentials, or they hold no token.
        LoginError: They cannot be read.
    """
    location = environment.get("HADOOP_TOKEN_FILE_LOCATION")
    token = secret(Path(location), APP_TOKEN) if location else None
    if token is None:
        raise InputError(
            "the container's credentials hold no token of Themis",
            value=location,
            remedy="the ResourceManager starts app masters on YARN; do not start one by hand",
        )
    return token.decode()
