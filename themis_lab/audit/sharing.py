"""Sharing incentive over rounds: simulated searches, and their finish times relative to their fair share."""

from __future__ import annotations

import random
from collections.abc import Callable

from rm_plugin.arbiter.seeds import child_seed
from rm_plugin.solvers.port import WinnerDetermination
from themis.errors import InvariantError
from themis.rho import HEADLINE
from themis.values import Value
from themis_lab.audit.agent_markets import SMALL_CLUSTER, cluster_of, random_app
from themis_lab.simulator.settings import Settings
from themis_lab.simulator.simulation import Simulation
from themis_lab.simulator.workload import Workload

APPS = 10
_AUCTION_LIMIT_S = 30.0
_LOADS = (4.0, 12.0)
"""Range of the apps' joint demand, relative to the cluster's GPUs."""


class WorldRho(Value, frozen=True, kw_only=True):
    """Rho at completion by app of one world, by the headline definition, and its number of rounds."""

    number: int
    rounds: int
    rho: dict[str, float]

    @property
    def worst(self) -> float:
        """The largest rho."""
        return max(self.rho.values())


def simulate_world(seed: int, number: int, make_solver: Callable[[], WinnerDetermination]) -> WorldRho:
    """Simulate one world from the first arrival to the last end, with the production arbiter, policy, auction, agents.

    Args:
        seed: The audit's seed.
        number: Number of the world.
        make_solver: Makes the auctions' solver.

    Raises:
        InvariantError: An invariant of the arbiter was violated after a round.
    """
    rng = random.Random(child_seed(seed, "world", str(number)))
    cluster = cluster_of(SMALL_CLUSTER)
    demand_gpus = rng.uniform(*_LOADS) * cluster.gpus / APPS
    at_s, traces = 0.0, []
    for index in range(APPS):
        traces.append(random_app(rng, f"a{index}", demand_gpus, at_s))
        at_s += rng.choice((0.0, 0.0, 60.0, 600.0))
    settings = Settings(cluster=cluster, seed=rng.getrandbits(32), auction_limit_s=_AUCTION_LIMIT_S)
    record = Simulation(Workload(name="audit", apps=tuple(traces)), settings, solver=make_solver()).run()
    if record.counts.violations:
        raise InvariantError("an invariant of the arbiter was broken", value=record.counts.violations[0])
    rho = {app.name: app.rho[HEADLINE] for app in record.apps}
    return WorldRho(number=number, rounds=record.counts.rounds, rho=rho)
