"""Sharing incentive over rounds: whole searches in virtual time, and how late apps end against their fair share."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from audit.agent_markets import SMALL_CLUSTER, cluster_of, random_app
from audit.virtual_cluster import World
from rm_plugin.arbiter.seeds import child_seed
from rm_plugin.solvers.port import WinnerDetermination

APPS = 10
_MOST_ROUNDS = 3000
_LOADS = (4.0, 12.0)
"""Together the apps want between so many times the cluster's GPUs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorldRho:
    """Rho at completion by app of one world (definition `themis`), and how many rounds it took."""

    number: int
    rounds: int
    rho: dict[str, float]

    @property
    def worst(self) -> float:
        """The largest rho."""
        return max(self.rho.values())


def play_world(seed: int, number: int, make_solver: Callable[[], WinnerDetermination]) -> WorldRho:
    """One world from the first arrival to the last end, by the production arbiter, policy, auction and agents.

    Args:
        seed: The audit's seed.
        number: Which world.
        make_solver: Makes the solver of an auction.
    """
    rng = random.Random(child_seed(seed, "world", str(number)))
    cluster = cluster_of(SMALL_CLUSTER)
    demand_gpus = rng.uniform(*_LOADS) * cluster.gpus / APPS
    at_s, arrivals = 0.0, []
    for index in range(APPS):
        arrivals.append((at_s, random_app(rng, f"a{index}", demand_gpus)))
        at_s += rng.choice((0.0, 0.0, 60.0, 600.0))
    world = World(cluster, seed=rng.getrandbits(32), make_solver=make_solver)
    world.run(arrivals, most_rounds=_MOST_ROUNDS)
    return WorldRho(number=number, rounds=len(world.results), rho=dict(sorted(world.rho.items())))
