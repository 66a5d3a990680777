"""Check at the start whether a YARN queue accepts apps, because otherwise every app would fail."""

from __future__ import annotations

import logging

from themis.errors import InputError
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
            "queue %s may use at most %.0f %% of its parent queue; Themis leases the other GPUs too, YARN starts no "
            "containers there, and these GPUs are closed for a while, again and again; raise "
            "yarn.scheduler.capacity.%s.maximum-capacity",
            queue.name,
            100.0 * queue.max_capacity_share,
            queue.name,
        )
