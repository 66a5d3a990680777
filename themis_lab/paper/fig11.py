"""Figure 11: total GPU time on the testbed with workload 1. In the paper it is about equal under all policies."""

from __future__ import annotations

from themis_lab.paper.efficiency import Efficiency

EXPERIMENT = Efficiency(name="fig11", title="total GPU time, workload 1", workload="w1", alike=True)
