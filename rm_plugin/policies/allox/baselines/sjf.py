"""SJF+: while machines are idle, start the job with the shortest time on an idle type. AlloX+ without a time-out."""

from __future__ import annotations

import math

from rm_plugin.policies.allox import allox_plus
from rm_plugin.policies.allox.values import Decision, Snapshot


def decide(snapshot: Snapshot) -> Decision:
    """Start the pairs (job, idle type) with the smallest times."""
    return allox_plus.decide(snapshot, timeout_s=math.inf)
