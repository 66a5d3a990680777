"""The compared policies by name, bound to what each needs to know of a workload."""

from __future__ import annotations

import statistics
from functools import partial

from rm_plugin.policies.allox import allox_plus, decision
from rm_plugin.policies.allox.baselines import bf, drfa, drff, drfs, es, es_fcfs, jsq, sjf, srpt
from themis.errors import UnknownNameError
from themis_lab.paper.allox.driver import Policy
from themis_lab.simulator.workloads.interchangeable import CPU, GPU, Trace

ALPHA = 0.1
"""The paper's value in simulations."""

NEEDS_NO_ESTIMATES = ("drff",)


def policy_named(name: str, trace: Trace, alpha: float = ALPHA) -> Policy:
    """The policy of this name for a workload. Raises UnknownNameError.

    DRFA gets the mean speedup of all jobs of the workload, which it needs in advance.
    """
    beta = statistics.fmean(job.true_s[CPU] / job.true_s[GPU] for job in trace.jobs)
    policies: dict[str, Policy] = {
        "allox": partial(decision.decide, alpha=alpha),
        "allox_plus": allox_plus.decide,
        "srpt": srpt.decide,
        "sjf": sjf.decide,
        "drfa": partial(drfa.decide, weights={GPU: beta, CPU: 1.0}),
        "es": partial(es.decide, users=trace.users),
        "drfs": drfs.decide,
        "drff": drff.decide,
        "es_fcfs": partial(es_fcfs.decide, users=trace.users),
        "jsq": jsq.decide,
        "bf": bf.decide,
    }
    try:
        return policies[name]
    except KeyError:
        raise UnknownNameError("policy", name, policies) from None
