"""Faults at random under load: no GPU twice, no app and no iteration lost, no orphan, and service within a minute.

`make test-chaos` plays 300 kills and 60 outages; `make test-slow` a few. `THEMIS_CHAOS_SEED` chooses the plan, and
`THEMIS_CHAOS_ENGINE=yarn` a development cluster of Hadoop.
"""

import os

import pytest
from chaos_run import ACTIVE_APPS, ChaosRun
from embedded_service import EmbeddedService
from fault_plan import fault_plan
from yarn_service import YarnService

KILLS = int(os.environ.get("THEMIS_CHAOS_KILLS", "12"))
OUTAGES = int(os.environ.get("THEMIS_CHAOS_OUTAGES", "5"))
ENGINE = os.environ.get("THEMIS_CHAOS_ENGINE", "local")
SEED = int(os.environ.get("THEMIS_CHAOS_SEED", "0"))
MEAN_PAUSE_S = 2.0
SERVES_AGAIN_S = 60.0
ORPHAN_S = 3.0

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400 + 15 * (KILLS + OUTAGES))]


@pytest.fixture(scope="module")
def played(tmp_path_factory):
    folder = tmp_path_factory.mktemp("chaos")
    service = YarnService(folder) if ENGINE == "yarn" else EmbeddedService(folder)
    plan = fault_plan(SEED, KILLS, OUTAGES, MEAN_PAUSE_S, on_yarn=service.on_yarn)
    run = ChaosRun(service, plan, SEED)
    try:
        witness = run.play()
        print("\n" + run.report(witness))
        yield run, witness
    finally:
        service.close()


def test_every_fault_of_the_plan_struck(played):
    run, _ = played
    assert sorted(each.fault.kind for each in run.struck) == sorted(fault.kind for fault in run.plan)


def test_no_gpu_was_used_by_two_processes_at_once(played):
    run, witness = played
    assert sum(bool(each.gpus) for each in witness.seen) > KILLS
    assert not witness.double_uses(run.service.masters_overlap_s)


def test_app_masters_were_started_for_apps_and_after_faults_only(played):
    """None gave up by itself, for example because of a full disk."""
    run, witness = played
    assert not run.gave_up()
    masters = sum(not each.is_task for each in witness.seen)
    # YARN takes all app masters of a node that is cut off, or that it did not hear while it stood still itself.
    cut_off = ACTIVE_APPS * sum(each.fault.kind in ("kill node", "stop YARN") for each in run.struck)
    ended = sum(each.fault.kind in ("kill app master", "stop app master") for each in run.struck)
    assert masters <= len(run.states) + ended + cut_off


def test_no_app_was_lost(played):
    run, _ = played
    assert len(run.accepted) > 1
    assert not run.lost_apps()


def test_no_iteration_was_lost_or_repeated_beyond_the_last_checkpoint(played):
    run, witness = played
    assert not run.broken_jobs(witness)


def test_no_process_outlived_its_owner(played):
    run, witness = played
    assert run.read_logs
    assert not run.troubles
    assert not witness.orphans(ORPHAN_S)


def test_the_service_served_again_within_a_minute_of_every_fault(played):
    run, witness = played
    for struck in run.struck:
        assert max(run.served(witness, struck.ended_s).values()) < SERVES_AGAIN_S, struck
