"""Rounds of OEF: when fair shares are computed again, and that a restart changes no decision."""

import random

import msgspec
import pytest

from rm_plugin.policies.oef.decision import OefMemory, decide_round
from rm_plugin.policies.oef.evaluator import Mode, rule_of
from rm_plugin.policies.oef.fair_share import ShareStatus
from rm_plugin.policies.oef.placement import Host, WaitingJob
from rm_plugin.policies.oef.speedup import Instance, Tenant
from rm_plugin.solvers.highs_linear import HighsModel

HOSTS = tuple(Host(host_id=f"h{number}", type_number=number // 2, gpus=4) for number in range(4))
RULE = rule_of(Mode.COOPERATIVE, HighsModel)
SPEEDUPS = {"u": (1.0, 2.0), "v": (1.0, 3.0), "w": (0.0, 1.0)}


def instance(*names, capacity=(8, 8)):
    tenants = tuple(Tenant(tenant_id=name, speedup=SPEEDUPS[name]) for name in names)
    return Instance(types=("slow", "fast"), capacity=capacity, tenants=tenants)


def job(tenant, number, gang=1, starved=0):
    return WaitingJob(
        job_id=f"{tenant}{number}",
        tenant_id=tenant,
        smallest=gang,
        largest=gang,
        speedup=SPEEDUPS[tenant],
        starved_rounds=starved,
        arrival_s=float(number),
    )


JOBS = [job(tenant, number, gang=1 + number % 3) for tenant in SPEEDUPS for number in range(6)]


def rounds(count, restart):
    """The places of each round; with `restart` the memory passes through JSON in between."""
    memory, placed = OefMemory(), []
    rng = random.Random(1)
    for _ in range(count):
        names = ["u", "v", *(["w"] if rng.random() < 0.7 else [])]
        jobs = [each for each in JOBS if each.tenant_id in names]
        decided = decide_round(memory, instance(*names), jobs, HOSTS, RULE)
        memory = decided.memory
        if restart:
            memory = msgspec.json.decode(msgspec.json.encode(memory), type=OefMemory)
        placed.append(decided.placed)
    return placed


def test_a_restart_between_rounds_changes_no_decision():
    assert rounds(20, restart=True) == rounds(20, restart=False)


def test_shares_are_computed_again_only_if_something_changed():
    first = decide_round(OefMemory(), instance("u", "v"), JOBS, HOSTS, RULE)
    same = decide_round(first.memory, instance("u", "v"), JOBS, HOSTS, RULE)
    assert first.fair is not None
    assert same.fair is None
    assert same.memory.share == first.memory.share
    assert decide_round(first.memory, instance("u", "v", "w"), JOBS, HOSTS, RULE).fair is not None
    assert decide_round(first.memory, instance("u", "v", capacity=(8, 4)), JOBS, HOSTS, RULE).fair is not None


def test_no_tenant_means_no_places_and_no_memory():
    first = decide_round(OefMemory(), instance("u"), JOBS, HOSTS, RULE)
    empty = decide_round(first.memory, None, [], HOSTS, RULE)
    assert (empty.placed, empty.granted, empty.memory) == ({}, {}, OefMemory())


def test_no_job_gets_a_type_on_which_it_cannot_run():
    decided = decide_round(OefMemory(), instance("u", "w"), JOBS, HOSTS, RULE)
    assert decided.granted["w"][0] == 0
    assert all(gang.type_numbers == (1,) for name, gang in decided.placed.items() if name.startswith("w"))


def test_after_a_failure_the_last_shares_continue_and_the_solver_is_asked_again():
    def failing(speedups):
        fair = RULE(speedups)
        return msgspec.structs.replace(fair, status=ShareStatus.EQUAL_SPLIT)

    first = decide_round(OefMemory(), instance("u", "v"), JOBS, HOSTS, RULE)
    failed = decide_round(first.memory, instance("u", "v", capacity=(8, 4)), JOBS, HOSTS, failing)
    assert failed.memory.status is ShareStatus.PREVIOUS
    assert sum(share[1] for share in failed.memory.share.values()) == pytest.approx(4.0)
    again = decide_round(failed.memory, instance("u", "v", capacity=(8, 4)), JOBS, HOSTS, RULE)
    assert again.memory.status is ShareStatus.OPTIMAL


@pytest.mark.parametrize("smallest_gangs", [True, False])
def test_too_small_gangs_are_given_back_unless_allowed(smallest_gangs):
    jobs = [job("u", 0, gang=1), job("v", 0, gang=8), *(job("u", number) for number in range(1, 16))]
    decided = decide_round(OefMemory(), instance("u", "v"), jobs, HOSTS, RULE, smallest_gangs=smallest_gangs)
    held = sum(decided.granted["v"])
    assert (held == 0 or held >= 8) if smallest_gangs else 0 < held < 8
