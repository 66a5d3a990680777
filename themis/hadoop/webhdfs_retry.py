"""How long to wait for HDFS: a fixed schedule without chance in it, and a deadline that progress resets."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator

from themis.hadoop.webhdfs_errors import is_ours, is_transient, refusal, unreachable
from themis.values import Value

LOG = logging.getLogger("themis.hdfs")

REPORT_AFTER_S = 3.0
"""A wait of less is no news: that long a NameNode takes that hands over to another one."""


class RetryRule(Value, frozen=True, kw_only=True):
    """Waits of `first_wait_s`, `factor` times that and so on up to `longest_wait_s`, until `deadline_s` is over.

    The deadline counts from the first failure since anything got through. Without jitter: a site has few writers, and
    a fixed schedule can be tested and documented.
    """

    first_wait_s: float = 0.1
    factor: float = 2.0
    longest_wait_s: float = 2.0
    deadline_s: float = 120.0

    def waits_s(self) -> Iterator[float]:
        """The waits in order, in seconds, without end."""
        wait_s = self.first_wait_s
        while True:
            yield min(wait_s, self.longest_wait_s)
            wait_s = min(wait_s * self.factor, self.longest_wait_s)


ONCE = RetryRule(deadline_s=0.0)
"""For what is not worth waiting for."""


class Patience:
    """The failures of one operation.

    Args:
        rule: How long it is tried again.
        now_s: The present time in seconds, from any origin; must not run backwards.
        sleep: Waits that many seconds.
    """

    def __init__(
        self,
        rule: RetryRule,
        *,
        now_s: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._rule = rule
        self._now_s = now_s
        self._sleep = sleep
        self.progressed()

    def progressed(self) -> None:
        """Note that an operation succeeded: the deadline and the waits start again with the next failure."""
        self._waits_s = self._rule.waits_s()
        self._since_s: float | None = None
        self._reported = False

    def failed(self, error: Exception, what: str, path: str) -> None:
        """Wait until the operation may be tried again. A long wait is logged once.

        Raises:
            HdfsRefusedError: It would fail again.
            HdfsUnreachableError: The deadline is over.
        """
        if not is_transient(error):
            if is_ours(error):
                raise refusal(what, path, error) from error
            raise error
        now_s = self._now_s()
        if self._since_s is None:
            self._since_s = now_s
        left_s = self._since_s + self._rule.deadline_s - now_s
        if left_s <= 0.0:
            raise unreachable(what, path, error, now_s - self._since_s) from error
        if not self._reported and now_s - self._since_s >= REPORT_AFTER_S:
            self._reported = True
            LOG.warning("%s; tried again for %.0f s", unreachable(what, path, error, now_s - self._since_s), left_s)
        self._sleep(min(next(self._waits_s), left_s))
