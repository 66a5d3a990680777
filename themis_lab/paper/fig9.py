"""Figure 9: the distribution of rho on the testbed with workload 1."""

from __future__ import annotations

from themis_lab.paper.fairness import Fairness

EXPERIMENT = Fairness(name="fig9", title="finish-time fairness across schedulers, workload 1", workload="w1")
