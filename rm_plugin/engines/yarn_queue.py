"""Check whether a YARN queue accepts apps: that of all apps at the start, an app's own at its submission."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from themis.errors import InputError, UnknownNameError
from themis.hadoop.values import QueueReport

LOG = logging.getLogger("themis.rm.yarn")


def check_queue(queue: QueueReport) -> None:
    """Raise InputError if the queue accepts no apps. Log a warning if it may not use all GPUs."""
    if queue.children:
        children = ", ".join(queue.children)
        raise InputError("only a queue without child queues accepts apps", value=queue.name, remedy=f"use: {children}")
    if not queue.is_running:
        remedy = f"set yarn.scheduler.capacity.{queue.name}.state to RUNNING, then: yarn rmadmin -refreshQueues"
        raise InputError("a stopped YARN queue accepts no apps", value=queue.name, remedy=remedy)
    # Some of YARN's schedulers do not report the share.
    if 0.0 < queue.max_capacity_share < 1.0:
        LOG.warning(
            "queue %s may use at most %.0f %% of its parent queue; Themis leases no GPUs beyond that; if that is not "
            "intended, raise yarn.scheduler.capacity.%s.maximum-capacity",
            queue.name,
            100.0 * queue.max_capacity_share,
            queue.name,
        )


def check_app_queue(name: str, queues: Sequence[QueueReport]) -> None:
    """Raise InputError unless one of YARN's queues without children has this name and runs."""
    found = [queue for queue in queues if queue.is_called(name)]
    if not found:
        raise UnknownNameError("YARN queue", name, [queue.name for queue in queues])
    if len(found) > 1:
        remedy = "name one by its path: " + ", ".join(queue.path for queue in found)
        raise InputError("several YARN queues have this name", value=name, remedy=remedy)
    if not found[0].is_running:
        raise InputError("a stopped YARN queue accepts no apps", value=name, remedy="name another one with --queue")
