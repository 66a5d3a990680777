"""The programmes of OEF and Gavel as their authors solve them: modelled with cvxpy, and solved by ECOS.

OEF's paper names both (Middleware'24, section 6.1.1), and so does Gavel's public code. The models follow the published
equations: OEF's 9 and 10, and the max-min programme of Gavel (OSDI'20, section 4.1). They are stated over whole
matrices, which is how cvxpy is fastest. ECOS is an interior-point solver, so shares may differ from a vertex; optima
may not.
"""

from __future__ import annotations

import time
import warnings
from typing import Any

import numpy as np

from rm_plugin.policies.oef.fair_share import FairShare
from rm_plugin.policies.oef.speedup import Speedups
from rm_plugin.solvers.linear import Vector
from themis.errors import InputError
from themis.values import Value

PEERS = ("noncooperative", "cooperative", "gavel_capped")
"""The rules that a peer's programme exists for."""


class PeerSolve(Value, frozen=True, kw_only=True):
    """A peer's solution.

    Attributes:
        objective: The optimum; see `objective_of`.
        cpu_s: CPU seconds to model, compile and solve.
    """

    objective: float
    cpu_s: float


def load_cvxpy() -> Any:
    """Import cvxpy, which only an extra installs. Raises InputError if it or ECOS is missing."""
    try:
        import cvxpy
        import ecos  # noqa: F401 - cvxpy finds it by itself
    except ImportError as error:
        remedy = "pip install 'themis-scheduler[peers]', or leave --peers out"
        raise InputError("--peers needs cvxpy and ecos", value=str(error), remedy=remedy) from None
    return cvxpy


def solve_as_peer(rule: str, speedups: Speedups) -> PeerSolve:
    """Solve an instance by the peer's programme for a rule of `PEERS`. Weights are taken as 1."""
    cp = load_cvxpy()
    began_s = time.process_time()
    problem = _problem(cp, rule, speedups)
    with warnings.catch_warnings():
        # cvxpy warns that ECOS is no longer its default.
        warnings.simplefilter("ignore")
        objective = problem.solve(solver="ECOS")
    return PeerSolve(objective=float(objective), cpu_s=time.process_time() - began_s)


def objective_of(rule: str, fair: FairShare) -> float:
    """The objective of our own solution: the total efficiency, or Gavel's least ratio to an equal split."""
    if rule != "gavel_capped":
        return fair.total
    return float((fair.efficiencies / _equal(fair.speedups)).min())


def _equal(speedups: Speedups) -> Vector:
    return np.asarray(speedups.matrix @ speedups.capacity / len(speedups.matrix))


def _problem(cp: Any, rule: str, speedups: Speedups) -> Any:
    speedup, capacity = speedups.matrix, speedups.capacity
    tenants = len(speedup)
    share = cp.Variable(speedup.shape, nonneg=True)
    efficiency = cp.sum(cp.multiply(speedup, share), axis=1)
    constraints = [cp.sum(share, axis=0) <= capacity]
    if rule == "noncooperative":
        constraints.append(efficiency[1:] == efficiency[:-1])
        return cp.Problem(cp.Maximize(cp.sum(efficiency)), constraints)
    if rule == "cooperative":
        own = cp.reshape(efficiency, (tenants, 1), order="C") @ np.ones((1, tenants))
        constraints.append(own >= speedup @ share.T)
        return cp.Problem(cp.Maximize(cp.sum(efficiency)), constraints)
    constraints.append(cp.sum(share, axis=1) <= 1.0)
    return cp.Problem(cp.Maximize(cp.min(efficiency / _equal(speedups))), constraints)
