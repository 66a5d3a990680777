"""Rho by the fluid fair cluster in the live service."""

import pytest
from service_cases import app

from rm_plugin.service.entries import AppEntries, AppEntry
from rm_plugin.service.fluid_fairness import FluidFairness
from themis.fluid_cluster import Declaration, FluidPhase
from themis.lifecycle import AppState
from themis.wire import themis_pb2 as pb
from themis.wire.values import declaration_from_message, declaration_to_message

DECLARED = Declaration(phases=(FluidPhase(100.0, 4.0),), cluster_time_s=80.0, share_demand=1.0)


def entry(app_id, submitted_at_s, state=AppState.RUNNING, ended_at_s=None, declared=DECLARED):
    message = None if declared is None else declaration_to_message(declared)
    made = AppEntry(app_id=app_id, spec=app(app_id), submitted_at_s=submitted_at_s, state=state)
    made.heartbeat = pb.Heartbeat(declaration=message)
    made.finished_at_s = ended_at_s
    if state is AppState.FINISHED:
        made.finish = pb.Finish(state=state.value, rho={"themis": 0.5}, declaration=message)
    return made


def test_finished_app_has_every_definition_and_keeps_its_own():
    alone = entry("a", 1000.0, AppState.FINISHED, 1150.0)
    assert FluidFairness(AppEntries([alone])).final_rho(alone, 4) == {
        "fluid": pytest.approx(1.5),
        "isolated_fluid": pytest.approx(1.5),
        "themis_fluid": pytest.approx(150 / 80),
        "themis": 0.5,
    }


def test_app_that_runs_or_never_declared_itself_has_no_rho_of_the_fluid_cluster():
    going = entry("a", 0.0)
    undeclared = entry("b", 0.0, AppState.FINISHED, 100.0, declared=None)
    fairness = FluidFairness(AppEntries([going, undeclared]))
    assert fairness.final_rho(going, 4) == {}
    assert fairness.final_rho(undeclared, 4) == {"themis": 0.5}


def test_apps_that_wait_for_their_first_heartbeat_after_a_restart_are_not_played():
    waiting = [entry(f"app-{number:04d}", float(number), declared=None) for number in range(3)]
    fairness = FluidFairness(AppEntries([*waiting, entry("app-0003", 3.0)]))
    assert [stay.app_id for stay in fairness.stays()] == ["app-0003"]
    assert fairness.lives(4).keys() == {"app-0003"}


def test_later_arrival_delays_the_end_of_an_app_that_has_really_ended_before():
    first = entry("a", 0.0, AppState.FINISHED, 50.0)
    entries = AppEntries([first])
    fairness = FluidFairness(entries)
    assert fairness.final_rho(first, 4)["fluid"] == pytest.approx(0.5)
    entries.add(entry("b", 60.0))
    # From 60 s on each has half: what is left, 40 s of the whole cluster, takes 80 s.
    assert fairness.final_rho(first, 4)["fluid"] == pytest.approx(50 / 140)


def test_arrival_counts_though_another_app_was_archived_meanwhile():
    first, old = entry("app-0001", 0.0, AppState.FINISHED, 50.0), entry("app-0000", 0.0, AppState.KILLED, 0.0)
    running = entry("app-0002", 200.0)
    entries = AppEntries([old, first, running])
    fairness = FluidFairness(entries)
    assert fairness.final_rho(first, 4)["fluid"] == pytest.approx(0.5)
    entries.archive(["app-0000"])
    running.update(state=AppState.KILLED, finished_at_s=300.0)
    entries.add(entry("app-0003", 60.0))
    assert fairness.final_rho(first, 4)["fluid"] == pytest.approx(50 / 140)


@pytest.mark.parametrize(("time_s", "ends_s"), [(104.0, 100.0), (106.0, 106.0)])
def test_life_follows_a_declaration_that_changed_much(time_s, ends_s):
    """As that of an app whose pace was unknown at first."""
    running = entry("a", 0.0)
    entries = AppEntries([running])
    entries.take_heartbeat(running, running.heartbeat)
    fairness = FluidFairness(entries)
    assert fairness.lives(4)["a"].ends_s == pytest.approx(100.0)
    anew = Declaration(phases=(FluidPhase(time_s, 4.0),), cluster_time_s=80.0, share_demand=1.0)
    entries.take_heartbeat(running, pb.Heartbeat(declaration=declaration_to_message(anew)))
    assert fairness.lives(4)["a"].ends_s == pytest.approx(ends_s)


def test_killed_app_leaves_the_fluid_cluster():
    entries = AppEntries([entry("a", 0.0), entry("b", 0.0, AppState.KILLED, 40.0)])
    lives = FluidFairness(entries).lives(4)
    # Half of the cluster for 40 s, then all of it: 80 s of the whole cluster are left.
    assert lives["a"].ends_s == pytest.approx(120.0)
    assert "b" not in lives


def test_declaration_survives_the_wire():
    assert declaration_from_message(declaration_to_message(DECLARED)) == DECLARED
