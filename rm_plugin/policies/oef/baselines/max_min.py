"""Max-min fairness: every tenant gets its part of each GPU type; speedups are ignored."""

from __future__ import annotations

from rm_plugin.policies.oef.fair_share import FairShare, ShareStatus, equal_split
from rm_plugin.policies.oef.speedup import Speedups


def max_min(speedups: Speedups) -> FairShare:
    """x_l^j = m_j pi_l / (sum of pi)."""
    return FairShare(status=ShareStatus.OPTIMAL, speedups=speedups, matrix=equal_split(speedups))
