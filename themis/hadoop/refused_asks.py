"""Remove requests that YARN refuses because they are larger than any node.

YARN refuses the whole heartbeat for one such request. Hadoop's `AMRMClient` keeps it for the next heartbeat. After its
removal the client still reports to YARN that none of it is wanted, which YARN refuses as well. So after one request
that is too large, no heartbeat of the app master succeeds. The request must be removed from the client's internal set
of changes, which only reflection reaches (`AMRMClientImpl.ask`, the same in Hadoop 2.x to 3.5).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import jpype

from themis.hadoop.java_errors import causes
from themis.hadoop.records import java_class

_REFUSED = "org.apache.hadoop.yarn.exceptions.InvalidResourceRequestException"
_CLIENT = "org.apache.hadoop.yarn.client.api.impl.AMRMClientImpl"


def refused_asks(error: jpype.JException, asked: Mapping[int, Any]) -> tuple[int, ...]:
    """Which of the pending asks YARN refused.

    Args:
        error: What a heartbeat ended with.
        asked: Java's requests by allocation request id.

    Returns:
        Their ids; none when the error is another one. YARN names one size it refuses; where it names none of ours, it
        may have been any of them.
    """
    text = next((str(cause.getMessage()) for cause in causes(error) if isinstance(cause, java_class(_REFUSED))), None)
    if text is None:
        return ()
    named = [number for number, request in asked.items() if f"Requested resource={request.getCapability()}" in text]
    return tuple(sorted(named or asked))


def forget_unsent(client: Any, allocation_request_ids: Collection[int]) -> None:
    """Take everything about these asks out of what the client will say next."""
    field = java_class("java.lang.Class").forName(_CLIENT).getDeclaredField("ask")
    field.setAccessible(True)
    unsent = field.get(client).iterator()
    while unsent.hasNext():
        if int(unsent.next().getAllocationRequestId()) in allocation_request_ids:
            unsent.remove()
