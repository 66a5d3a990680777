"""What holds in every run, whatever the policy, the workload and the choices: over random small workloads."""

import random

import pytest
from msgspec.structs import replace
from sim_cases import COSTS, FAR, FLAT, FREE, app, cluster, job, settings, workload

from rm_plugin.arbiter.core import LeasePolicy
from rm_plugin.policies.port import traits_of
from rm_plugin.policies.registry import POLICIES, make_policy
from themis.apps import CRUDE_SLOWDOWN, TunerSpec
from themis.choices import LeaseEnds
from themis_lab.simulator.settings import NodeOutage
from themis_lab.simulator.simulation import Simulation

SMALL = cluster((2, 2), (2, 2), (2,), (1,), (1,), racks=("r0", "r1"))
SEEDS = range(4)


def random_app(rng, name, at_s, gangs):
    gpus = rng.choice([1, 1, 2, 4])
    least = rng.choice([1, gpus]) if gangs else 1
    slowdown = rng.choice([FLAT, CRUDE_SLOWDOWN, FAR])
    jobs = [
        job(f"j{place}", rng.randint(50, 3000), rng.choice([0.5, 1.0, 7.0]), gpus, least, slowdown, floor=rng.random())
        for place in range(rng.randint(1, 6))
    ]
    tuner = TunerSpec(name=rng.choice(["single", "successive_halving"]))
    return app(name, *jobs, at_s=at_s, tuner=tuner)


def random_run(seed, policy="themis", **others):
    rng = random.Random(seed)
    gangs = traits_of(make_policy(policy)).gangs
    apps = [random_app(rng, f"a{place}", rng.choice([0, 0, 100, 2000]) * place, gangs) for place in range(8)]
    outages = (NodeOutage(machine_id="m1", lost_at_s=1500.0, back_at_s=4000.0),) if seed % 2 else ()
    return Simulation(workload(*apps), settings(SMALL, policy=policy, seed=seed, outages=outages, **others))


@pytest.mark.parametrize("costs", [COSTS, FREE], ids=["costs", "free"])
@pytest.mark.parametrize("ends", list(LeaseEnds))
@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_every_app_ends_and_its_times_add_up(policy, ends, costs):
    for seed in SEEDS:
        leases = LeasePolicy(duration_s=600.0, ends=ends, checkpoint_lead_s=costs.checkpoint_s)
        record = random_run(seed, policy=policy, leases=leases, costs=costs).run()
        assert len(record.apps) == 8
        assert not record.counts.violations
        assert not record.counts.declined
        for each in record.apps:
            assert each.gpu_time_s >= each.running_gpu_s - 1e-6
            assert each.running_gpu_s >= each.ideal_gpu_s - 1e-6
            assert each.queueing_s <= each.completion_s
            assert 0.2 < each.placement_score <= 1.0
            assert each.rho["themis"] >= each.bound - 1e-6
        assert record.running_share <= record.leased_share + 1e-9 <= 1.0 + 2e-9


@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_the_same_seed_gives_the_same_record(policy):
    one, two = (random_run(3, policy=policy, record_rounds=True).run() for _ in range(2))
    assert replace(one, wall_s=0, counts=None) == replace(two, wall_s=0, counts=None)
    assert one.counts.granted_gpus == two.counts.granted_gpus


def test_another_seed_gives_other_rounds():
    one, two = (
        Simulation(random_run(2).workload, settings(SMALL, seed=seed, record_rounds=True)).run() for seed in (1, 2)
    )
    assert one.rounds != two.rounds
