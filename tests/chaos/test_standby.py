"""The active ResourceManager is killed, or stands still, under load: the standby takes over, and loses nothing.

`make test-chaos` kills 20 times, `make test-slow` three times. `THEMIS_STANDBY_KILLS` sets the number.
"""

import itertools
import os

import pytest
from chaos_run import ChaosRun
from fault_plan import Fault
from process_witness import ProcessWitness
from standby_pair import StandbyPair

KILLS = int(os.environ.get("THEMIS_STANDBY_KILLS", "3"))
PAUSE_S = 8.0
STANDS_STILL_S = 40.0
"""Longer than a lock lasts: the standby takes over while the former one still exists."""
SERVES_AGAIN_S = 60.0
START_S = 15.0
"""Within it an app master has registered, also on a busy machine."""

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400 + 40 * KILLS)]


def report(run: ChaosRun, witness: ProcessWitness) -> str:
    lines = [f"{'fault':24}{'answers':>9}{'takes':>9}{'starts':>9}"]
    for struck in run.struck:
        served = run.served(witness, struck.begun_s).values()
        lines.append(f"{struck.fault.kind:24}" + "".join(f"{seconds:9.1f}" for seconds in served))
    return "\n".join(lines)


@pytest.fixture(scope="module")
def played(tmp_path_factory):
    pair = StandbyPair(tmp_path_factory.mktemp("standby"))
    kill = Fault(pause_s=PAUSE_S, kind="kill resource manager", pick=0.0)
    still = Fault(pause_s=PAUSE_S, kind="stop resource manager", pick=0.0, length_s=STANDS_STILL_S)
    run = ChaosRun(pair, (*[kill] * KILLS, still), seed=1)
    try:
        witness = run.play()
        print("\n" + report(run, witness))
        yield run, witness
    finally:
        pair.close()


def test_the_standby_served_within_a_minute_of_every_fault(played):
    run, witness = played
    assert len(run.struck) == KILLS + 1
    for struck in run.struck:
        assert max(run.served(witness, struck.begun_s).values()) < SERVES_AGAIN_S, struck


def test_no_gpu_was_used_by_two_processes_at_once(played):
    _, witness = played
    assert any(each.gpus for each in witness.seen)
    assert not witness.double_uses()


def test_an_app_master_was_started_again_only_if_a_fault_struck_its_start(played):
    run, witness = played
    starts_s: dict[tuple[str, ...], list[float]] = {}
    for master in witness.seen:
        if not master.is_task:
            starts_s.setdefault(master.owner, []).append(master.started_s)
    assert len(starts_s) >= len(run.states)
    for owner, of_app in starts_s.items():
        for earlier_s, later_s in itertools.pairwise(sorted(of_app)):
            struck = [fault for fault in run.struck if earlier_s - 0.1 <= fault.begun_s <= earlier_s + START_S]
            assert struck, f"{owner} was started {later_s - earlier_s:.1f} s after its first app master"


def test_no_app_and_no_iteration_was_lost(played):
    run, witness = played
    assert len(run.accepted) > 1
    assert not run.lost_apps()
    assert not run.broken_jobs(witness)


def test_no_process_was_left(played):
    run, witness = played
    assert not run.troubles
    assert not witness.orphans(3.0)


def test_the_one_that_stood_still_stopped_once_it_ran_again(played):
    run, _ = played
    assert "has taken the lock" in run.service.log() or "claimed the shared state" in run.service.log()
