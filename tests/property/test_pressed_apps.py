"""The pressed apps of `fair_finish` do not depend on how far ahead the fluid cluster is played."""

import math
from random import Random

import pytest
from test_simulation_properties import COSTS, FREE, SMALL, random_app, settings, workload

from rm_plugin.arbiter.core import LeasePolicy
from rm_plugin.policies import fair_finish
from rm_plugin.policies.due_dates import due_times_s
from themis_lab.simulator.simulation import Simulation


@pytest.mark.parametrize("seed", range(6))
def test_decisions_equal_those_by_all_due_dates(monkeypatch, seed):
    rng = Random(seed)
    apps = [random_app(rng, f"a{place}", rng.choice([0, 0, 100, 2000]) * place, True) for place in range(10)]
    leases = LeasePolicy(duration_s=rng.choice([60.0, 600.0]), checkpoint_lead_s=COSTS.checkpoint_s)
    choices = settings(
        SMALL, policy="fair_finish", seed=seed, leases=leases, costs=(COSTS, FREE)[seed % 2], record_rounds=True
    )
    horizons = []

    def by_all(fluid, metered, until_s=math.inf):
        horizons.append((until_s, len(metered)))
        return due_times_s(fluid, metered)

    found = Simulation(workload(*apps), choices).run()
    monkeypatch.setattr(fair_finish, "due_times_s", by_all)
    wanted = Simulation(workload(*apps), choices).run()
    assert horizons and all(until_s < math.inf for until_s, _ in horizons)
    assert found.rounds == wanted.rounds
    assert found.apps == wanted.apps
