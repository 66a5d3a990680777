"""Delegation tokens of our own login, for WebHDFS: fetched by Hadoop's client in the JVM, replaced before they end.

WebHDFS takes a token in place of a ticket, so nothing in Python speaks Kerberos. A token ends
`dfs.namenode.delegation.token.renew-interval` (a day by default) after it was issued. It is never renewed: a new one
is fetched when most of that time is over, so that a login outlives the greatest lifetime of any token.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping

from themis.errors import ThemisError
from themis.hadoop.errors import LoginError
from themis.hadoop.webhdfs_token import IssuedToken

LOG = logging.getLogger("themis.hadoop.tokens")

REPLACED_AFTER = 0.75
"""Of a token's life: the rest is for times when the NameNode is unreachable."""
_RETRIES = 20
"""So often at most a replacement is tried in that rest."""


class LoginTokens:
    """The token of one HDFS, good at any time. Any thread may ask.

    Args:
        fetch: Gets a new one; raises ThemisError.
        now_s: The present time in seconds, from any origin; must not run backwards.
    """

    def __init__(self, fetch: Callable[[], IssuedToken], *, now_s: Callable[[], float] = time.monotonic) -> None:
        self._fetch = fetch
        self._now_s = now_s
        self._lock = threading.Lock()
        self._text = ""
        self._replace_at_s = self._ends_at_s = self._now_s()
        self._retry_s = 0.0

    def current(self) -> str:
        """A token that has not ended.

        Raises:
            ThemisError: There is none, and none is to be had.
        """
        with self._lock:
            now_s = self._now_s()
            if now_s < self._replace_at_s:
                return self._text
            try:
                self._take(self._fetch(), now_s)
            except ThemisError as error:
                if now_s >= self._ends_at_s:
                    raise
                LOG.warning("no new token for HDFS, the old one is good for %.0f s: %s", self._ends_at_s - now_s, error)
                self._replace_at_s = min(now_s + self._retry_s, self._ends_at_s)
            return self._text

    def _take(self, issued: IssuedToken, asked_at_s: float) -> None:
        self._text = issued.text
        self._replace_at_s = asked_at_s + REPLACED_AFTER * issued.life_s
        self._ends_at_s = asked_at_s + issued.life_s
        self._retry_s = (self._ends_at_s - self._replace_at_s) / _RETRIES


_tokens: dict[str, LoginTokens] = {}
_making = threading.Lock()


def login_tokens(file_system: str, environment: Mapping[str, str]) -> LoginTokens:
    """The tokens of this process for one file system; nothing is fetched yet.

    Args:
        file_system: URI of the file system, e.g. `hdfs://nameservice`.
        environment: Leads to configuration, jars and keytab; where several callers differ the first one's counts.

    Raises:
        LoginError: JPype is not installed.
    """
    try:
        from themis.hadoop.security import own_token
    except ImportError as error:
        raise LoginError(
            "this cluster uses Kerberos, and there is neither a delegation token nor JPype, by which Java fetches one",
            remedy="set HADOOP_TOKEN_FILE_LOCATION, or pip install JPype1",
        ) from error
    with _making:
        if file_system not in _tokens:
            _tokens[file_system] = LoginTokens(lambda: own_token(file_system, environment))
        return _tokens[file_system]
