"""Figure 10: the distribution of rho on the testbed with workload 2."""

from __future__ import annotations

from themis_lab.paper.fairness import Fairness

EXPERIMENT = Fairness(name="fig10", title="finish-time fairness across schedulers, workload 2", workload="w2")
